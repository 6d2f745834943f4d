package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/dag"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// canaries verify that each shard serves through a front-proxy. A new shard is tested as soon as it can be, while
// others still start. What is tested after a change is tested when all changes are made.
type canaries struct {
	*Up
	// shards are those to test.
	shards      []*topology.Component
	root, proxy *kcp.Client
	// through is the front-proxy of the tests.
	through *topology.Component
	report  *run.Reasons
	// testing limits how many shards are tested concurrently.
	testing *semaphore.Weighted

	mu sync.Mutex
	// left is the number of shards that are not tested yet.
	left   int
	begun  bool
	tested []topology.ID
}

// newCanaries returns the canaries of a run. They do nothing if nothing is changed.
func (r *rollout) newCanaries() (*canaries, error) {
	out := &canaries{Up: r.Up, testing: semaphore.NewWeighted(atOnce)}
	out.report = run.NewReasons(func(msg string) { r.Step(stepCanary, run.Running, msg) })
	through := r.frontProxy()
	if r.Options.SkipCanary || !r.verify || through == nil {
		return out, nil
	}
	var errRoot, errProxy error
	out.root, errRoot = r.connect(r.Topology.Root())
	out.through = through
	out.proxy, errProxy = r.connect(through)
	if err := errors.Join(errRoot, errProxy); err != nil {
		return nil, r.Fail(stepCanary, err)
	}
	for _, c := range r.Topology.Shards() {
		_, left := plan.UnreachableIn(r.left, c.Cluster.Name)
		if !left && plan.Scope(r.Options.Canaries).Includes(c.ID()) {
			out.shards = append(out.shards, c)
		}
	}
	out.left = len(out.shards)
	return out, nil
}

// extend adds the canaries to the graph of a rollout, and what comes before them.
func (cs *canaries) extend(graph map[node][]node, all *changes) {
	root := cs.Topology.Root().ID()
	all.refresh(graph, root)
	var rolled []node
	for n := range graph {
		if ch := all.of[n.component]; ch.rolls && !ch.Kind.Tenant() && len(ch.grants) == 0 {
			rolled = append(rolled, n)
		}
	}
	for _, shard := range cs.shards {
		needs := slices.Clone(rolled)
		for _, n := range []node{{shard.ID(), serves}, {root, serves}, {cs.through.ID(), serves}, {root, refreshed}} {
			if _, ok := graph[n]; ok && !slices.Contains(needs, n) {
				needs = append(needs, n)
			}
		}
		graph[node{shard.ID(), proven}] = needs
	}
	for _, c := range all.all {
		if c.Kind.Tenant() {
			start := node{c.ID(), applied}
			graph[start] = append(graph[start], cs.before(graph)...)
		}
	}
}

// before returns what comes before the components that use kcp as its users do: all shards of the run serve, and
// workspaces can be created on them.
func (cs *canaries) before(graph map[node][]node) []node {
	var out []node
	for _, c := range append(cs.Topology.Shards(), cs.Topology.FrontProxies()...) {
		for _, p := range []phase{serves, refreshed, proven} {
			if _, ok := graph[node{c.ID(), p}]; ok {
				out = append(out, node{c.ID(), p})
			}
		}
	}
	return out
}

// test tests a shard, unless it is cordoned, so that no workspace would ever be scheduled there. A shard that is not
// part of the run may not exist yet.
func (cs *canaries) test(ctx context.Context, id topology.ID) error {
	if err := cs.testing.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer cs.testing.Release(1)
	shard := cs.Topology.Component(id).ShardName()
	cs.begin()
	takes, err := cs.takesWorkspaces(ctx, shard)
	if err == nil && takes {
		err = cs.proxy.Canary(ctx, shard, func(reason string) { cs.report.Set(shard, reason) })
		cs.report.Set(shard, "")
	}
	if err == nil {
		cs.passed(id, takes)
	}
	return err
}

// passed reports the result as soon as the last shard has passed: what uses kcp comes after it.
func (cs *canaries) passed(id topology.ID, tested bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.left--; tested {
		cs.tested = append(cs.tested, id)
	}
	switch {
	case cs.left > 0:
	case len(cs.tested) == 0:
		cs.Step(stepCanary, run.Done, "none: every shard is cordoned")
	default:
		shards := slices.DeleteFunc(slices.Clone(cs.shards),
			func(c *topology.Component) bool { return !slices.Contains(cs.tested, c.ID()) })
		cs.Step(stepCanary, run.Done,
			"a workspace on each of "+shardNames(shards)+" became Ready and was read through the front-proxy")
	}
}

// takesWorkspaces reports whether a shard is registered and not cordoned.
func (cs *canaries) takesWorkspaces(ctx context.Context, shard string) (bool, error) {
	takes := false
	report := func(reason string) { cs.report.Set(shard, reason) }
	err := poll.Until(ctx, run.PollInterval, report, func() (string, error) {
		registered, err := cs.root.Shard(ctx, shard)
		if err != nil && !errors.Is(err, kcp.ErrNotRegistered) {
			return poll.Reason(err), nil
		}
		takes = err == nil && !registered.Cordoned
		return "", nil
	})
	return takes, err
}

func (cs *canaries) begin() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !cs.begun {
		cs.begun = true
		cs.Step(stepCanary, run.Running, "a workspace on "+gather.Count(len(cs.shards), "shard", "shards"))
	}
}

// finish reports the results of the graph. err is the failure of the components, if there is one.
func (cs *canaries) finish(ctx context.Context, results map[node]error, err error) error {
	interrupted := errors.Is(context.Cause(ctx), context.Canceled)
	switch {
	case err != nil && cs.begun && cs.left > 0 && interrupted:
		cs.Step(stepCanary, run.Interrupted, "")
	case err != nil && cs.begun && cs.left > 0:
		cs.Step(stepCanary, run.Skipped, "not all components serve")
	}
	if err != nil || len(cs.shards) == 0 {
		return err
	}
	var failed []string
	for _, c := range cs.shards {
		if err := results[node{c.ID(), proven}]; err != nil && !errors.Is(err, dag.ErrSkipped) {
			failed = append(failed, fmt.Sprintf("%s: canary: %v", c.ID(), err))
		}
	}
	switch {
	case len(failed) > 0 && interrupted:
		cs.Step(stepCanary, run.Interrupted, "")
		return run.Interruption()
	case len(failed) > 0:
		text := strings.Join(failed, "\n")
		return cs.Fail(stepCanary, clierr.New(clierr.NotReady, canaryHint(text), "%s", text))
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

// unindexed is the answer of a front-proxy for a workspace that is on none of the shards that it watches: it has not
// authenticated the user yet (kcp: pkg/proxy/lookup/lookup.go).
const unindexed = `User "" cannot`

func canaryHint(failed string) string {
	if strings.Contains(failed, unindexed) {
		return "the front-proxy does not find the workspace, probably because it cannot reach the base URL of a shard: see kcpctl check (KCP114), " +
			"and kcpctl logs of the front-proxy"
	}
	return "see the shards' logs; kcpctl status shows what is registered"
}
