package lcd

import (
	"maps"
	"slices"
)

// Defaults returns the fields that both schemas have, and for which only the next one has its default, sorted by path.
func Defaults(was, next *Schema) []Incompatibility {
	w := &walk{}
	w.defaults("", was, next)
	w.sort()
	return w.found
}

// defaults finds the defaults below a path.
func (w *walk) defaults(path string, was, next *Schema) {
	if next.Default != nil && (was.Default == nil || !equalJSON(was.Default.Raw, next.Default.Raw)) {
		w.differ(path, "the default is %s", next.Default.Raw)
	}
	for _, name := range slices.Sorted(maps.Keys(was.Properties)) {
		if to, ok := next.Properties[name]; ok {
			from := was.Properties[name]
			w.defaults(join(path, name), &from, &to)
		}
	}
	if was.Items != nil && next.Items != nil && was.Items.Schema != nil && next.Items.Schema != nil {
		w.defaults(path+"[*]", was.Items.Schema, next.Items.Schema)
	}
	from := was.AdditionalProperties
	to := next.AdditionalProperties
	if from != nil && to != nil && from.Schema != nil && to.Schema != nil {
		w.defaults(join(path, "*"), from.Schema, to.Schema)
	}
}
