package schedule

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// DefaultSpread returns how objects of a resource are spread without an annotation, or false if their kind is not in
// the table. Workloads with data in their cluster, such as StatefulSets with volumeClaimTemplates, run on one cluster.
// What follows workloads is on each cluster if a user chooses where it is.
func DefaultSpread(gr schema.GroupResource, data bool) (Spread, bool) {
	k, ok := kinds.OfResource(gr)
	switch {
	case !ok:
		return "", false
	case data, k.Data == kinds.AlwaysData:
		return Single, true
	case k.Spread == kinds.Follow:
		return Duplicate, true
	}
	return Spread(k.Spread), true
}

// NotSetError means that the kind of an object is not in the table, and that no annotation has its spread.
type NotSetError struct{ Resource schema.GroupResource }

func (e *NotSetError) Error() string {
	return fmt.Sprintf("kcpctl does not know %s: annotate the object or its namespace with %s=%s (on one cluster) "+
		"or %s=%s (on each cluster)",
		e.Resource, api.AnnotationSpread, Single, api.AnnotationSpread, Duplicate)
}

// CheckSpread returns an error if objects of a resource cannot be spread as the hints say, or if nothing says how they
// are spread.
func CheckSpread(h Hints, gr schema.GroupResource, data bool) error {
	k, known := kinds.OfResource(gr)
	switch {
	case h.Spread == "":
		return &NotSetError{gr}
	case h.Spread == Divide && (data || !known || k.Spread != kinds.Divide && !k.Divisible):
		return fmt.Errorf("annotation %s: %q: objects of this kind cannot be divided", api.AnnotationSpread, h.Spread)
	}
	return nil
}
