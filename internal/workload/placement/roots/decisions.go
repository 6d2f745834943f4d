package roots

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/fleet"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

// decided is where a workload runs after the last decision.
type decided struct {
	clusters []string
	// seen is the state that the places of dependencies depend on.
	seen string
	// leaving are the clusters that a workload with an autoscaler leaves.
	leaving []string
	// shares are the replicas of the next step by cluster, for a root with a UID. Divided means that they are parts of
	// the replicas of the root.
	shares  map[string]int64
	divided bool
	uid     types.UID
	moved   moves
	// stuck has since when replicas have not been available, by cluster.
	stuck map[string]time.Time
}

// decisions are the last decision about each workload, and what changes it.
type decisions struct {
	mu  sync.Mutex
	all map[item]decided
	// on has the workloads by cluster, waiting those that another cluster or more room can change, and everywhere those
	// that go to each cluster.
	on                  map[string]map[item]bool
	waiting, everywhere map[item]bool
	// fingerprints are the states that the last decisions depended on, by cluster.
	fingerprints map[string]fingerprint
}

func newDecisions() *decisions {
	return &decisions{all: map[item]decided{}, on: map[string]map[item]bool{}, waiting: map[item]bool{},
		everywhere: map[item]bool{}}
}

func (d *decisions) of(i item) (decided, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last, known := d.all[i]
	return last, known
}

func (d *decisions) remember(i item, next decided, waits, everywhere bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unlink(i)
	d.all[i] = next
	for _, c := range next.clusters {
		if d.on[c] == nil {
			d.on[c] = map[item]bool{}
		}
		d.on[c][i] = true
	}
	if waits {
		d.waiting[i] = true
	}
	if everywhere {
		d.everywhere[i] = true
	}
}

// count counts the moves of a decision whose leaves are written.
func (d *decisions) count(i item, moved moves) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last, ok := d.all[i]; ok && moved.n > 0 {
		last.moved = moved
		d.all[i] = last
	}
}

func (d *decisions) forget(i item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unlink(i)
	delete(d.all, i)
}

// unlink removes a workload from the indexes. The decisions are locked.
func (d *decisions) unlink(i item) {
	for _, c := range d.all[i].clusters {
		delete(d.on[c], i)
	}
	delete(d.waiting, i)
	delete(d.everywhere, i)
}

// near sets the clusters with objects that a workload wants to be near to, or not: leaves in the same namespace, and
// what was decided about other workloads there.
func (d *decisions) near(all []neighbour, w *schedule.Workload) {
	w.Affine = map[string]bool{}
	w.AntiAffine = map[string]bool{}
	for _, n := range all {
		last, _ := d.of(n.item)
		on := last.clusters
		if n.cluster != "" {
			on = []string{n.cluster}
		}
		for _, c := range on {
			w.Affine[c] = w.Affine[c] || n.affine
			w.AntiAffine[c] = w.AntiAffine[c] || n.anti
		}
	}
}

// affected returns the workloads that a change of the clusters affects: workloads with a share in a cluster whose state
// has changed, and, if any cluster has changed, workloads that wait for one, or that go to each.
func (d *decisions) affected(f facts, now time.Time) map[item]bool {
	next := map[string]fingerprint{}
	for _, c := range f.Clusters {
		next[c.Name] = fingerprintOf(c, f.serving, now)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	names := maps.Clone(next)
	maps.Copy(names, d.fingerprints)
	out := map[item]bool{}
	anyState := false
	anyRoom := false
	for name := range names {
		was := d.fingerprints[name]
		is := next[name]
		if was.state != is.state {
			anyState = true
			maps.Copy(out, d.on[name])
		}
		anyRoom = anyRoom || was.room != is.room
	}
	d.fingerprints = next
	if anyState || anyRoom {
		maps.Copy(out, d.waiting)
	}
	if anyState {
		maps.Copy(out, d.everywhere)
	}
	return out
}

type fingerprint struct {
	// state changes what runs there, and room only what can be added.
	state, room string
}

// fingerprintOf returns what decisions depend on of a cluster. What pods request changes all the time, and is seen when
// a decision is made for another reason.
func fingerprintOf(c *api.Cluster, serving serving, now time.Time) fingerprint {
	evicted := meta.FindStatusCondition(c.Status.Conditions, api.ConditionEvicted)
	reason := ""
	if evicted != nil {
		reason = string(evicted.Status) + evicted.Reason
	}
	f := fingerprint{state: fmt.Sprint(
		c.UID, c.Labels, c.Spec.Unschedulable, c.Draining(), c.Status.APIs, fleet.IsReady(c), settled(c, now),
		serving.recent(c, now), notReadyReason(c), reason, c.Spec.WorkspaceSelector,
	)}
	if c.Status.Capacity != nil {
		for _, name := range slices.Sorted(maps.Keys(c.Status.Capacity.Allocatable)) {
			q := c.Status.Capacity.Allocatable[name]
			f.room += fmt.Sprint(name, q.String(), " ")
		}
	}
	return f
}
