package negotiate

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/apis/lcd"
)

// Change is the effect of the requests of an Input on the schema of a published API.
type Change struct {
	API     schema.GroupResource
	Version string
	// Lost are the fields of objects that the next schema refuses or drops, and Gained the fields that only the next
	// one accepts, or gives their default. Both are sorted by path, and empty if the schema does not change.
	Lost, Gained []lcd.Incompatibility
	// Refused is why a request cannot be fulfilled. Schemas that other clusters request can still change.
	Refused string
}

// Preview returns what Negotiate would do with the requests: a change for each API that is requested and published,
// sorted by group and resource. It fails if a published schema cannot be read.
func Preview(in Input) ([]Change, error) {
	all, err := publishedAPIs(in.Export, in.Schemas)
	if err != nil {
		return nil, err
	}
	var out []Change
	for _, gr := range sorted(slices.Collect(maps.Keys(all))) {
		was, narrowing := all[gr], in.narrowing(gr)
		if len(narrowing) == 0 && !slices.Contains(in.Widen, gr) {
			continue
		}
		is, refused := next(gr, was, in)
		c := change(gr, was, is)
		if len(refused) > 0 {
			c.Refused = "the common schema of the clusters is narrower than the published one: " + describe(refused)
		}
		for _, cluster := range narrowing {
			if s := state(gr, is, cluster); !s.State.Serves() {
				c.Refused = cmp.Or(c.Refused, s.Message)
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// Compare returns how the published schemas have changed: a change for each API that is published before and after, and
// whose schema differs. It fails if a schema cannot be read.
func Compare(before, after Input) ([]Change, error) {
	from, err := publishedAPIs(before.Export, before.Schemas)
	if err != nil {
		return nil, err
	}
	to, err := publishedAPIs(after.Export, after.Schemas)
	if err != nil {
		return nil, err
	}
	var out []Change
	for _, gr := range sorted(slices.Collect(maps.Keys(from))) {
		was := from[gr]
		is := to[gr]
		if is != nil && is.name != was.name {
			out = append(out, change(gr, was, &is.API))
		}
	}
	return out, nil
}

// change compares two schemas of an API.
func change(gr schema.GroupResource, was *published, is *API) Change {
	c := Change{API: gr, Version: is.Version, Lost: lcd.Narrows(was.Schema, is.Schema),
		Gained: gained(was.Schema, is.Schema)}
	if was.Subresources.Status != nil && is.Subresources.Status == nil {
		c.Lost = append(c.Lost, lcd.Incompatibility{Path: "status", Message: "the API has no subresource status"})
	}
	return c
}

// gained returns what the next schema accepts and the previous one does not, and its new defaults.
func gained(was, next *lcd.Schema) []lcd.Incompatibility {
	return append(lcd.Narrows(next, was), lcd.Defaults(was, next)...)
}
