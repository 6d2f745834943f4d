package workloads

import "strings"

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

// isHuge reports whether a text can be a quantity with more digits than count.
func isHuge(text string) bool {
	if text == "" || !strings.Contains("+-.0123456789", text[:1]) {
		return false
	}
	exponent := strings.IndexAny(text, "eE")
	return len(text) > maxQuantity || exponent >= 0 && len(text)-exponent > maxExponent
}
