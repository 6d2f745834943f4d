package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/dag"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// canaries verify that each shard serves through a front-proxy. A new shard is tested as soon as it can be, while others
// still start. What is tested after a change is tested when all changes are made.
type canaries struct {
	*Up
	// shards are those to test.
	shards      []*topology.Component
	root, proxy *kcp.Client
	// through is the front-proxy of the tests.
	through *topology.Component
	report  *reasons
	// testing limits how many shards are tested concurrently.
	testing *semaphore.Weighted

	mu     sync.Mutex
	begun  bool
	tested []topology.ID
}

// newCanaries returns the canaries of a run. They do nothing if nothing is changed.
func (r *rollout) newCanaries() (*canaries, error) {
	out := &canaries{Up: r.Up, testing: semaphore.NewWeighted(atOnce)}
	out.report = newReasons(func(msg string) { r.step(stepCanary, Running, msg) })
	through := r.frontProxy()
	if r.Options.SkipCanary || !r.verify || through == nil {
		return out, nil
	}
	var errRoot, errProxy error
	out.root, errRoot = r.connect(r.Topology.Root())
	out.through = through
	out.proxy, errProxy = r.connect(through)
	if err := errors.Join(errRoot, errProxy); err != nil {
		return nil, r.fail(stepCanary, err)
	}
	for _, c := range r.Topology.Shards() {
		if _, left := plan.UnreachableIn(r.left, c.Cluster.Name); !left && scope(r.Options.Canaries).includes(c.ID()) {
			out.shards = append(out.shards, c)
		}
	}
	return out, nil
}

// extend adds the canaries to the graph of a rollout.
func (cs *canaries) extend(graph map[node][]node, all *changes) {
	var rolled []node
	for n := range graph {
		if all.of[n.component].rolls {
			rolled = append(rolled, n)
		}
	}
	for _, shard := range cs.shards {
		needs := slices.Clone(rolled)
		for _, c := range []*topology.Component{shard, cs.Topology.Root(), cs.through} {
			serving := node{c.ID(), serves}
			if _, ok := graph[serving]; ok && !slices.Contains(needs, serving) {
				needs = append(needs, serving)
			}
		}
		graph[node{shard.ID(), proven}] = needs
	}
}

// test tests a shard, unless it is cordoned, so that no workspace would ever be scheduled there. A shard that the run leaves
// out may not exist yet.
func (cs *canaries) test(ctx context.Context, id topology.ID) error {
	if err := cs.testing.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer cs.testing.Release(1)
	shard := cs.Topology.Component(id).ShardName()
	cs.begin()
	takes, err := cs.takesWorkspaces(ctx, shard)
	if err != nil || !takes {
		return err
	}
	err = cs.proxy.Canary(ctx, shard, func(reason string) { cs.report.set(shard, reason) })
	cs.report.set(shard, "")
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.tested = append(cs.tested, id)
	return err
}

// takesWorkspaces reports whether a shard is registered and not cordoned.
func (cs *canaries) takesWorkspaces(ctx context.Context, shard string) (bool, error) {
	for {
		registered, err := cs.root.Shard(ctx, shard)
		if err == nil || errors.Is(err, kcp.ErrNotRegistered) {
			return err == nil && !registered.Cordoned, nil
		}
		cs.report.set(shard, err.Error())
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

func (cs *canaries) begin() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !cs.begun {
		cs.begun = true
		cs.step(stepCanary, Running, "a workspace on "+count(len(cs.shards), "shard", "shards"))
	}
}

// finish reports the results of the graph. err is the failure of the components, if there is one.
func (cs *canaries) finish(ctx context.Context, results map[node]error, err error) error {
	if err != nil && cs.begun {
		cs.step(stepCanary, Skipped, "not all components serve")
	}
	if err != nil || len(cs.shards) == 0 {
		return err
	}
	var failed []string
	var tested []*topology.Component
	for _, c := range cs.shards {
		if err := results[node{c.ID(), proven}]; err != nil && !errors.Is(err, dag.ErrSkipped) {
			failed = append(failed, fmt.Sprintf("%s: canary: %v", c.ID(), err))
		}
		if slices.Contains(cs.tested, c.ID()) {
			tested = append(tested, c)
		}
	}
	switch {
	case len(failed) > 0 && errors.Is(context.Cause(ctx), context.Canceled):
		return errInterrupted()
	case len(failed) > 0:
		return cs.fail(stepCanary, clierr.New(clierr.NotReady,
			"see the shards' logs; kcpctl status shows what is registered", "%s", strings.Join(failed, "\n")))
	case len(tested) == 0:
		cs.step(stepCanary, Done, "none: every shard is cordoned")
	default:
		cs.step(stepCanary, Done, "a workspace on each of "+shardNames(tested)+" became Ready and was read through the front-proxy")
	}
	return nil
}

// close closes the connections.
func (cs *canaries) close() {
	for _, c := range []*kcp.Client{cs.root, cs.proxy} {
		if c != nil {
			c.Close()
		}
	}
}

func shardNames(shards []*topology.Component) string {
	if len(shards) > 5 {
		return fmt.Sprintf("%d shards", len(shards))
	}
	var out []string
	for _, c := range shards {
		out = append(out, c.ShardName())
	}
	return strings.Join(out, ", ")
}
