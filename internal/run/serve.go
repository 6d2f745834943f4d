package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/parallel"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// leaderPatience is how long a leader may take to leave: its pod keeps serving for a while first.
const leaderPatience = 3 * time.Minute

// connect returns an administrator's client of a component.
func (r *rollout) connect(c *topology.Component) (*kcp.Client, error) {
	return kcp.Connect(r.Runtime, c, r.state, r.Now())
}

// gate asks a component itself whether it serves, and the root shard whether a shard is registered.
func (r *rollout) gate(ctx context.Context, c *topology.Component) error {
	switch c.Kind {
	case topology.Base, topology.Etcd:
		return nil
	case topology.Kubeconfig:
		return r.bindRoles(ctx, c)
	}
	client, err := r.connect(c)
	if err != nil {
		return err
	}
	if err := r.until(ctx, c, func() error { return client.Ready(ctx) }); err != nil || !c.IsShard() {
		return err
	}
	root, err := r.connect(r.Topology.Root())
	if err != nil {
		return err
	}
	err = r.until(ctx, c, func() error {
		shard, err := registered(ctx, root, c)
		if err != nil {
			return err
		}
		return root.SetLabels(ctx, shard, c.ShardLabels)
	})
	if err != nil || !r.changes.of[c.ID()].isNew {
		return err
	}
	r.replicate(ctx, root, c)
	return nil
}

// replicate makes a new shard known to the scheduler of workspaces at once. It never fails: the root shard replicates its
// Shard objects too.
func (r *rollout) replicate(ctx context.Context, root *kcp.Client, shard *topology.Component) {
	server := r.Topology.Cache()
	if server == nil {
		return // the root shard serves the cache, and replicates to it without a limit
	}
	cache, err := r.connect(server)
	if err != nil {
		return
	}
	defer cache.Close()
	_ = root.ReplicateShard(ctx, cache, shard.ShardName())
}

// registered returns a shard as kcp has it, or an error if it is not registered with the URL that the topology gives it.
func registered(ctx context.Context, root *kcp.Client, c *topology.Component) (kcp.Shard, error) {
	shards, err := root.Shards(ctx)
	if err != nil {
		return kcp.Shard{}, err
	}
	for _, s := range shards {
		if s.Name != c.ShardName() {
			continue
		}
		if s.BaseURL != c.URL {
			return s, fmt.Errorf("registered with the URL %s, not yet %s", s.BaseURL, c.URL)
		}
		return s, nil
	}
	return kcp.Shard{}, errors.New("not yet registered with the root shard")
}

// bindRoles gives the user of a kubeconfig the cluster roles that it is declared with.
func (r *rollout) bindRoles(ctx context.Context, c *topology.Component) error {
	if len(c.Access.ClusterRoles) == 0 {
		return nil
	}
	proxy, err := r.connect(r.Topology.FrontProxies()[0])
	if err != nil {
		return err
	}
	return r.until(ctx, c, func() error {
		return proxy.BindRoles(ctx, c.Access.Workspace, c.Object(), pki.KubeconfigGroup(c), c.Access.ClusterRoles)
	})
}

// until retries until it works or ctx ends, and reports why it does not work yet.
func (r *rollout) until(ctx context.Context, c *topology.Component, try func() error) error {
	reported := ""
	for {
		err := try()
		if err == nil {
			return nil
		}
		if msg := err.Error(); ctx.Err() == nil && msg != reported {
			reported = msg
			r.component(c.ID(), Running, msg)
		}
		select {
		case <-ctx.Done():
			return &notReady{reported, nil, "", context.Cause(ctx)}
		case <-time.After(pollInterval):
		}
	}
}

// reconnect gives front-proxies connections to the new pods of a component that was rolled. Otherwise they keep using
// their connections to the old pods, and lose the requests that are under way when these end. The old pods keep
// serving until then, for the time of their preStop hook. This helps only if the other front-proxies serve in the
// meantime. It never fails: without it a request or two may.
func (r *rollout) reconnect(ctx context.Context, c *topology.Component) {
	if !c.Proxied() || c.Replicas < 2 {
		return
	}
	for _, proxy := range r.Topology.FrontProxies() {
		if s, err := r.Runtime.State(ctx, proxy); proxy.Replicas < 2 || err != nil || !s.Ready {
			continue
		}
		r.component(c.ID(), Running, fmt.Sprintf("new pods serve; %s reconnects to them", proxy.ID()))
		if err := r.Runtime.Replace(ctx, proxy); err != nil {
			r.note(fmt.Sprintf("%s keeps its connections to the old pods of %s, so a request may fail when they end: %s",
				proxy.ID(), c.ID(), firstLine(err)))
		}
	}
}

// hasLeader reports whether one of a component's replicas leads the others.
func hasLeader(c *topology.Component) bool { return c.IsShard() && !c.Storage.Embedded }

// handOver lets the next leader of a shard's replicas start as soon as the previous one has ended. kcp's leaders do
// not release their lease, so the next one would wait a minute for its end (kcp: pkg/server/server.go,
// LeaseDuration): a minute in which no workspace becomes Ready. Once the leader's pod is gone, kcpctl releases the
// lease for it. It never fails: the lease ends anyway.
func (r *rollout) handOver(ctx context.Context, c *topology.Component) {
	client, err := r.connect(c)
	if err != nil {
		return
	}
	run := ctx
	ctx, cancel := context.WithTimeout(run, leaderPatience)
	defer cancel()
	step, reported := fmt.Sprintf("leader of %s", c.ID()), ""
	for {
		leader, err := client.Leader(ctx)
		state, stateErr := r.Runtime.State(ctx, c)
		stays, exists := state.Pods[leader.Host]
		message := ""
		switch {
		case err != nil || stateErr != nil:
			// The connection may have been to a pod that is ending.
		case stays || !leader.Elected:
			if reported != "" {
				r.step(step, Done, leader.Host)
			}
			return
		case exists:
			message = leader.Host + " is terminating"
		case leader.Host != "" && client.Release(ctx, leader) == nil:
			message = leader.Host + " is gone" // the next leader may be a pod that is terminating too
		}
		if message != "" && message != reported {
			reported = message
			r.step(step, Running, message)
		}
		select {
		case <-ctx.Done():
			if reported != "" && run.Err() == nil {
				r.step(step, Done, reported+"; the next leader starts when its lease ends")
			}
			return
		case <-time.After(4 * pollInterval):
		}
	}
}

// canaries verify that every shard serves through a front-proxy.
func (u *Up) canaries(ctx context.Context, s *pki.State) error {
	shards, err := u.canaryShards(ctx, s)
	if err != nil {
		return u.fail(stepCanary, err)
	}
	if len(shards) == 0 {
		u.step(stepCanary, Done, "none: every shard is cordoned")
		return nil
	}
	proxy, err := kcp.Connect(u.Runtime, u.Topology.FrontProxies()[0], s, u.Now())
	if err != nil {
		return u.fail(stepCanary, err)
	}
	if u.Options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, u.Options.Timeout, errTimeout{u.Options.Timeout})
		defer cancel()
	}
	u.step(stepCanary, Running, "a workspace on "+count(len(shards), "shard", "shards"))
	report := newReasons(func(msg string) { u.step(stepCanary, Running, msg) })
	errs := parallel.Map(atOnce, shards, func(c *topology.Component) error {
		err := proxy.Canary(ctx, c.ShardName(), func(reason string) { report.set(c.ShardName(), reason) })
		report.set(c.ShardName(), "")
		return err
	})
	var failed []string
	for i, err := range errs {
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s: canary: %v", shards[i].ID(), err))
		}
	}
	if len(failed) == 0 {
		u.step(stepCanary, Done, "a workspace on each of "+shardNames(shards)+" became Ready and was read through the front-proxy")
		return nil
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return errInterrupted()
	}
	return u.fail(stepCanary, clierr.New(clierr.NotReady,
		"see the shards' logs; kcpctl status shows what is registered", "%s", strings.Join(failed, "\n")))
}

// canaryShards returns the registered shards of the setup without the cordoned ones, where no workspace would ever be
// scheduled. All are registered by now, unless the run is limited to other components.
func (u *Up) canaryShards(ctx context.Context, s *pki.State) ([]*topology.Component, error) {
	root, err := kcp.Connect(u.Runtime, u.Topology.Root(), s, u.Now())
	if err != nil {
		return nil, err
	}
	registered, err := root.Shards(ctx)
	if err != nil {
		return nil, err
	}
	schedulable := map[string]bool{}
	for _, sh := range registered {
		schedulable[sh.Name] = !sh.Cordoned
	}
	return slices.DeleteFunc(u.Topology.Shards(), func(c *topology.Component) bool {
		return !scope(u.Options.Canaries).includes(c.ID()) || !schedulable[c.ShardName()]
	}), nil
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
