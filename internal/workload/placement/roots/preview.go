package roots

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/kit/poll"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

const previewInterval = 20 * time.Millisecond

// Move is the change that a request to rebalance would make to a root.
type Move struct {
	schema.GroupVersionResource
	// Cluster is the logical cluster of its workspace.
	Cluster, Namespace, Name string
	// From has its replicas by cluster, and To its replicas in the end.
	From, To map[string]int64
}

// Preview returns the roots that a request to rebalance would move, in the order of their APIs and names. It decides as
// a Scheduler does, from the objects at the endpoints of the published APIs, and writes nothing. It fails if not all
// objects could be read within the timeout; zero means no limit.
func Preview(ctx context.Context, o Options, state State, endpoints []string, timeout time.Duration) ([]Move, error) {
	if state.Published == nil || state.Published.nothing() {
		return nil, nil
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	set, err := watch.New(ctx, watch.Options{Config: o.KCP, Path: watch.AllClusters, Now: o.Now})
	if err != nil {
		return nil, err
	}
	defer set.Stop()
	d := newDecider(&view{Options: o, last: facts{set: set}})
	_, f := d.update(state)
	if err := set.Update(endpoints, f.watched()); err != nil {
		return nil, err
	}
	if err := complete(ctx, set); err != nil {
		return nil, err
	}
	var out []Move
	for _, r := range state.Published.Scheduled {
		for _, root := range set.List(r) {
			if m := d.moveOf(item{r, watch.KeyOf(root.Unstructured)}, root); m != nil {
				out = append(out, *m)
			}
		}
	}
	return out, nil
}

func complete(ctx context.Context, set *watch.Set) error {
	for !set.Complete() {
		if err := poll.Pause(ctx, previewInterval); err != nil {
			if failures := set.Failures(); len(failures) > 0 {
				err = failures[0]
			}
			return fmt.Errorf("not all objects of the workspaces could be read in time: %w", err)
		}
	}
	return nil
}

// moveOf returns what a request to rebalance would change of a root, or nil if that is nothing.
func (d *decider) moveOf(i item, root watch.Object) *Move {
	if root.GetDeletionTimestamp() != nil || !splitter.IsRoot(root.Unstructured) ||
		splitter.Follows(i.GroupResource(), root.Unstructured) {
		return nil
	}
	sub := d.subject(i, root)
	if sub.mistakes != nil {
		return nil
	}
	sub.workload.Rebalance = true
	from := map[string]int64{}
	for name, share := range sub.staying() {
		add(from, name, share.Replicas)
	}
	decision, _ := d.decide(sub)
	to := map[string]int64{}
	for name, n := range decision.Goal {
		add(to, name, n)
	}
	for name, share := range decision.Next {
		if share.Lost {
			add(to, name, share.Replicas) // it stays as it is
		}
	}
	if maps.Equal(from, to) {
		return nil
	}
	return &Move{
		GroupVersionResource: i.GroupVersionResource, Cluster: i.Cluster, Namespace: i.Namespace, Name: i.Name,
		From: from, To: to,
	}
}

func add(to map[string]int64, cluster string, n int64) {
	if n > 0 {
		to[cluster] = n
	}
}
