package workloads

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxQuantity is the length of the longest quantity that counts, and maxExponent of its longest exponent, such as e+12.
const maxQuantity, maxExponent = 64, 4

// Countable returns a copy of a part of an object without the quantities that take more memory than there is, such as
// 1e1000000000: kcp stores them, and they must not even be parsed. Only the quantities of the copy can be used: other
// texts that look like such a quantity are not in it, either.
func Countable(part any) any {
	switch part := part.(type) {
	case map[string]any:
		out := make(map[string]any, len(part))
		for key, value := range part {
			if text, ok := value.(string); !ok || !isHuge(text) {
				out[key] = Countable(value)
			}
		}
		return out
	case []any:
		out := make([]any, len(part))
		for i, item := range part {
			out[i] = Countable(item)
		}
		return out
	}
	return part
}

// quantityFields are the fields of built-in types that are quantities, or below which all texts are.
var quantityFields = map[string]bool{
	"requests": true, "limits": true, "overhead": true, "sizeLimit": true, "divisor": true, "capacity": true,
	"allocatedResources": true, "averageValue": true, "hard": true,
}

// HugeQuantity returns the path of a quantity in an object that an API server cannot parse without taking more memory
// than there is. It is empty if there is none. kcp does not parse the quantities of published APIs.
func HugeQuantity(object map[string]any) string { return hugeIn(object, "", "", false) }

// hugeIn looks below a field. counts means that all texts there are quantities.
func hugeIn(value any, path, field string, counts bool) string {
	switch value := value.(type) {
	case string:
		if counts && isHuge(value) && !strings.ContainsFunc(value, isNoDigit) {
			return path
		}
	case []any:
		for i, item := range value {
			if found := hugeIn(item, fmt.Sprintf("%s[%d]", path, i), field, counts); found != "" {
				return found
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if key == "metadata" {
				continue
			}
			below := counts || quantityFields[key] || field == "target" && key == "value" // of an autoscaler
			if found := hugeIn(value[key], strings.TrimPrefix(path+"."+key, "."), key, below); found != "" {
				return found
			}
		}
	}
	return ""
}

// isNoDigit reports whether a quantity does not have a character.
func isNoDigit(r rune) bool { return !strings.ContainsRune("+-.0123456789eEnumkMGTPi", r) }

// isHuge reports whether a text can be a quantity with more digits than count.
func isHuge(text string) bool {
	if text == "" || !strings.Contains("+-.0123456789", text[:1]) {
		return false
	}
	exponent := strings.IndexAny(text, "eE")
	return len(text) > maxQuantity || exponent >= 0 && len(text)-exponent > maxExponent
}
