package render

import (
	"fmt"
	"reflect"
)

// Strict fails if an object has a field that its type does not have. Rendering itself verifies only the objects that an overlay
// was merged into.
func Strict(o Object) error {
	for _, m := range manifests {
		into := m.typed()
		if reflect.TypeOf(into).Elem().Name() == o.GetKind() {
			return strict(o.Object, into)
		}
	}
	return fmt.Errorf("no template renders a %s", o.GetKind())
}
