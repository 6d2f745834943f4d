package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// The steps of a removal.
const (
	stepCordon   = "cordon"
	stepContents = "contents"
	stepDrain    = "drain"
	stepShard    = "registration"
	stepData     = "data"
)

// RemoveShard takes a shard out of a running kcp: it is cordoned, emptied or found empty, forgotten by kcp, taken out of the
// setup file, and then its workload is removed. A removal that was interrupted continues when it is run again.
type RemoveShard struct {
	// Topology is the setup with the shard; or without, if an earlier removal has come so far.
	Topology *topology.Topology
	Runtime  Runtime
	// Name is the shard's name in kcp.
	Name string
	// Drain moves what lives on the shard to others.
	Drain bool
	// Purge deletes the shard's data too.
	Purge bool
	// Edit takes the shard out of the setup file, and returns the setup as it is to be remembered. It is called when kcp has
	// forgotten the shard and before its workload is removed.
	Edit    func() ([]byte, error)
	Observe Observer
	Now     func() time.Time
	// Timeout limits the wait for moves; 0 is none.
	Timeout time.Duration

	state *pki.State
	root  *kcp.Client
	// moving is set once something may have been moved.
	moving bool
}

// ids are the components that belong to the shard.
func (r *RemoveShard) ids() []topology.ID {
	return []topology.ID{topology.IDOf(topology.Shard, r.Name), topology.IDOf(topology.Etcd, r.Name)}
}

// Run removes the shard.
func (r *RemoveShard) Run(ctx context.Context) error {
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.Timeout, errTimeout{r.Timeout})
		defer cancel()
	}
	objects, err := r.Runtime.Objects(ctx)
	if err != nil {
		return err
	}
	if r.state, err = r.Runtime.Store().Load(ctx); err != nil {
		return err
	}
	if r.root, err = Connect(r.Runtime, r.Topology.Root(), r.state, r.Now()); err != nil {
		return err
	}
	shards, err := r.root.Shards(ctx)
	if err != nil {
		return clierr.New(clierr.NotReady, "bring it up with kcpctl up first", "the root shard does not answer: %w", err)
	}
	own, others := split(objects, func(it plan.Item) bool { return slices.Contains(r.ids(), it.Component) })
	at := slices.IndexFunc(shards, func(s kcp.Shard) bool { return s.Name == r.Name })
	if at < 0 && len(own) == 0 && r.Topology.Component(r.ids()[0]) == nil && !r.Purge {
		return clierr.New(clierr.BadInput, "kcpctl status lists the shards", "there is no shard %q", r.Name)
	}
	if err := r.empty(ctx, shards, at, own); err != nil {
		return err
	}
	return r.remove(ctx, own, others)
}

// empty makes sure that nothing lives on the shard. A shard that is not empty, and cannot be drained, stays as it was.
func (r *RemoveShard) empty(ctx context.Context, shards []kcp.Shard, at int, own []plan.Item) error {
	c := r.Topology.Component(r.ids()[0])
	if c == nil && at >= 0 {
		return clierr.New(clierr.Failed, "add it to spec.shards again", "%s is registered and may have workspaces, but the setup file does not have it", r.ids()[0])
	}
	if c == nil || at < 0 && len(own) == 0 {
		return nil // nobody can have put anything there, or an earlier removal has made sure
	}
	cordoned := false
	if at >= 0 && !shards[at].Cordoned {
		r.step(stepCordon, Running, "")
		if err := r.root.Cordon(ctx, r.Name, true); err != nil {
			return r.fail(stepCordon, err)
		}
		cordoned = true
		r.step(stepCordon, Done, "no new workspaces")
	}
	err := r.emptied(ctx, c, shards, at >= 0)
	if err != nil && cordoned && !r.moving {
		if err := r.root.Cordon(context.WithoutCancel(ctx), r.Name, false); err == nil {
			r.step(stepCordon, Done, "undone")
		}
	}
	return err
}

func (r *RemoveShard) emptied(ctx context.Context, c *topology.Component, shards []kcp.Shard, registered bool) error {
	r.step(stepContents, Running, "")
	client, err := Connect(r.Runtime, c, r.state, r.Now())
	if err != nil {
		return err
	}
	living, err := r.settled(ctx, client)
	switch {
	case err != nil && registered:
		return r.fail(stepContents, clierr.New(clierr.NotReady, "mend it first: kcpctl status and kcpctl logs "+string(c.ID()),
			"%s does not tell what lives on it: %w", c.ID(), err))
	case err != nil:
		r.step(stepContents, Done, "unknown: it neither answers nor is registered, so kcp sends nobody there")
		return nil
	case len(living) == 0:
		r.step(stepContents, Done, "nothing lives there")
		return nil
	}
	r.step(stepContents, Done, count(len(living), "logical cluster", "logical clusters"))
	if !r.Drain {
		return clierr.New(clierr.Failed, "delete them, or move them to other shards with --drain; nothing was changed",
			"%s is not empty: %s\n%s", c.ID(), count(len(living), "logical cluster lives there", "logical clusters live there"), paths(living))
	}
	return r.drain(ctx, c, client, shards)
}

// settled is what lives on the shard. If all of it is being deleted, that is waited for.
func (r *RemoveShard) settled(ctx context.Context, shard *kcp.Client) ([]kcp.LogicalCluster, error) {
	for {
		living, err := shard.LogicalClusters(ctx)
		if err != nil || len(living) == 0 || slices.ContainsFunc(living, func(l kcp.LogicalCluster) bool { return !l.Deleting }) {
			return living, err
		}
		r.step(stepContents, Running, living[0].String())
		select {
		case <-ctx.Done():
			return living, nil
		case <-time.After(pollInterval):
		}
	}
}

// paths lists logical clusters, one per line, but not endlessly.
func paths(all []kcp.LogicalCluster) string {
	const most = 50
	var lines []string
	for _, l := range all[:min(most, len(all))] {
		lines = append(lines, "    "+l.String())
	}
	if more := len(all) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("    and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// remove is what is left to do when nothing lives on the shard. Each part may have been done before.
func (r *RemoveShard) remove(ctx context.Context, own, others []plan.Item) error {
	r.step(stepShard, Running, "")
	if err := r.root.DeleteShard(ctx, r.Name); err != nil {
		return r.fail(stepShard, err)
	}
	if err := r.forget(ctx); err != nil { // while it is known which they are
		return r.fail(stepShard, err)
	}
	setup, err := r.Edit()
	if err != nil {
		return r.fail(stepShard, err)
	}
	r.step(stepShard, Done, "kcp and the setup file have no shard "+r.Name)
	unlock, err := r.Runtime.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := r.Runtime.Begin(ctx, &plan.Plan{Items: append(slices.Clone(others), own...), Stale: true}); err != nil {
		return err
	}
	for _, id := range r.ids() { // the shard before its etcd
		items, _ := split(own, func(it plan.Item) bool { return it.Component == id })
		if err := r.delete(ctx, id, items); err != nil {
			return err
		}
	}
	// A process that was started again meanwhile has registered again.
	if err := r.root.DeleteShard(ctx, r.Name); err != nil {
		return r.fail(stepShard, err)
	}
	return r.Runtime.Finish(ctx, &plan.Plan{Items: others}, setup)
}

func (r *RemoveShard) delete(ctx context.Context, id topology.ID, items []plan.Item) error {
	if len(items) > 0 {
		r.step(string(id), Running, "removing "+count(len(items), "object", "objects"))
		if err := r.Runtime.Delete(ctx, items); err != nil {
			return r.fail(string(id), err)
		}
		r.step(string(id), Done, count(len(items), "object", "objects")+" removed")
	}
	if !r.Purge {
		return nil
	}
	if err := r.Runtime.PurgeData(ctx, id); err != nil {
		return r.fail(stepData, err)
	}
	r.step(stepData, Done, "deleted")
	return nil
}

// forget deletes the shard's certificates where the store keeps them.
func (r *RemoveShard) forget(ctx context.Context) error {
	store, ok := r.Runtime.Store().(pki.Forgetter)
	if !ok {
		return nil
	}
	var keys []pki.LeafKey
	for _, id := range r.ids() {
		if c := r.Topology.Component(id); c != nil {
			for _, cert := range pki.CertsOf(r.Topology, c) {
				keys = append(keys, cert.Key())
			}
		}
	}
	return store.Forget(ctx, keys)
}

func (r *RemoveShard) step(name string, s Status, msg string) {
	r.Observe(Event{Time: r.Now(), Scope: Step, Name: name, Status: s, Message: msg})
}

func (r *RemoveShard) fail(step string, err error) error {
	r.step(step, Failed, firstLine(err))
	return err
}
