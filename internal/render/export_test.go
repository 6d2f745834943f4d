package render

import (
	"fmt"
	"reflect"
	"strings"
)

// Strict fails if an object has a field that its type does not have. Rendering itself verifies only the objects that an overlay
// was merged into.
func Strict(o Object) error {
	if group := o.GroupVersionKind().Group; strings.HasSuffix(group, ".kcp.io") || group == "apiextensions.k8s.io" || group == "workloads.kcp.dev" {
		return nil // these types are no dependency
	}
	for _, m := range manifests {
		into := m.typed()
		if reflect.TypeOf(into).Elem().Name() == o.GetKind() {
			return strict(o.Object, into)
		}
	}
	return fmt.Errorf("no template renders a %s", o.GetKind())
}
