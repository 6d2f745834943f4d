package splitter

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// droppedFor is how long a field is not sent again that kcp has dropped: the schema can change.
const droppedFor = 10 * time.Minute

// Dropped remembers the fields of a status that kcp drops, because the schema of the kind does not have them. Otherwise
// each look at an object would send them again.
type Dropped struct {
	mu     sync.Mutex
	fields map[statusOf]map[string]time.Time
	// freed is when the fields that are sent again were last forgotten.
	freed time.Time
}

// statusOf is the status of a kind in a logical cluster, which has its own schema until kcp has updated its
// APIBinding.
type statusOf struct {
	schema.GroupKind
	cluster string
}

// free forgets the fields that are sent again, at most once in droppedFor: fields of workspaces and kinds that are gone
// would be kept otherwise. The mutex is locked.
func (d *Dropped) free(now time.Time) {
	if now.Sub(d.freed) < droppedFor {
		return
	}
	d.freed = now
	for at, fields := range d.fields {
		maps.DeleteFunc(fields, func(_ string, until time.Time) bool { return !now.Before(until) })
		if len(fields) == 0 {
			delete(d.fields, at)
		}
	}
}

// HasConditions reports whether the status of a kind has conditions, as far as that is known.
func (d *Dropped) HasConditions(gk schema.GroupKind, cluster string, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free(now)
	return HasConditions(gk) && !now.Before(d.fields[statusOf{gk, cluster}]["conditions"])
}

// Strip removes the fields from a status that kcp drops.
func (d *Dropped) Strip(gk schema.GroupKind, cluster string, status map[string]any, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free(now)
	for field, until := range d.fields[statusOf{gk, cluster}] {
		if now.Before(until) {
			delete(status, field)
		}
	}
}

// Learn compares fields of a status that were sent with the answer. It reports whether kcp has dropped the conditions.
func (d *Dropped) Learn(gk schema.GroupKind, cluster string, sent map[string]any, answer *unstructured.Unstructured,
	now time.Time) (conditions bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free(now)
	at := statusOf{gk, cluster}
	for field, value := range sent {
		if _, kept, _ := unstructured.NestedFieldNoCopy(answer.Object, "status", field); kept || value == nil {
			continue
		}
		if d.fields == nil {
			d.fields = map[statusOf]map[string]time.Time{}
		}
		if d.fields[at] == nil {
			d.fields[at] = map[string]time.Time{}
		}
		d.fields[at][field] = now.Add(droppedFor)
		conditions = conditions || field == "conditions"
	}
	return conditions
}
