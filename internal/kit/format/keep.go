package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// identifying are the fields that tell the items of a list apart.
var identifying = []string{"workspace", "component", "group", "kind", "namespace", "name", "asked", "revision"}

// Keep returns a new JSON document with the fields of the previous one that type T does not have. What T has, the new
// document decides. Fields of an object or a list item that the new one no longer has go with it.
func Keep[T any](previous, next []byte) ([]byte, error) {
	if len(previous) == 0 {
		return next, nil
	}
	var typed T
	if err := json.Unmarshal(previous, &typed); err != nil {
		return nil, err
	}
	known, err := json.Marshal(typed)
	if err != nil {
		return nil, err
	}
	var trees [3]any
	for i, raw := range [][]byte{previous, known, next} {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&trees[i]); err != nil {
			return nil, err
		}
	}
	k := &keeper{}
	k.add(trees[2], trees[0], trees[1])
	if !k.added {
		return next, nil
	}
	return json.Marshal(trees[2])
}

type keeper struct{ added bool }

// add adds to next what previous has and known does not.
func (k *keeper) add(next, previous, known any) {
	switch known := known.(type) {
	case map[string]any:
		next, ok := next.(map[string]any)
		previous, was := previous.(map[string]any)
		if ok && was {
			k.addFields(next, previous, known)
		}
	case []any:
		next, ok := next.([]any)
		previous, was := previous.([]any)
		if ok && was && len(previous) == len(known) {
			k.addItems(next, previous, known)
		}
	}
}

func (k *keeper) addFields(next, previous, known map[string]any) {
	for name, value := range previous {
		now, has := next[name]
		was, knows := known[name]
		switch {
		case knows && has:
			k.add(now, value, was)
		case !knows && !has && !isZero(value):
			next[name] = value
			k.added = true
		}
	}
}

// isZero reports whether a value is one that an encoder may omit: a field with it may be known.
func isZero(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return value == nil || value == false || value == "" || value == json.Number("0")
}

func (k *keeper) addItems(next, previous, known []any) {
	at := map[string]any{}
	for _, item := range next {
		if id := identity(item); at[id] == nil {
			at[id] = item
		}
	}
	for i := range known {
		k.add(at[identity(known[i])], previous[i], known[i])
	}
}

func identity(item any) string {
	fields, ok := item.(map[string]any)
	if !ok {
		return fmt.Sprint(item)
	}
	var out strings.Builder
	for _, name := range identifying {
		if value, ok := fields[name]; ok {
			fmt.Fprintf(&out, "%s=%v ", name, value)
		}
	}
	return out.String()
}
