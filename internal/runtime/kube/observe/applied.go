package observe

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
)

// applied are the generations of the objects that this run has applied.
type applied struct {
	mu          sync.Mutex
	generations map[plan.Ref]generation
}

// generation is a state of an object's spec.
type generation struct {
	uid     types.UID
	created time.Time
	number  int64
}

func (a *applied) add(ref plan.Ref, o *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.generations == nil {
		a.generations = map[plan.Ref]generation{}
	}
	a.generations[ref] = generation{
		uid: o.GetUID(), created: o.GetCreationTimestamp().Time, number: o.GetGeneration(),
	}
}

// outdated reports whether an object is older than the one that this run has applied.
func (a *applied) outdated(ref plan.Ref, o *unstructured.Unstructured) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	g, ok := a.generations[ref]
	switch {
	case !ok:
		return false
	case g.uid == o.GetUID():
		return o.GetGeneration() < g.number
	}
	return o.GetCreationTimestamp().Time.Before(g.created)
}
