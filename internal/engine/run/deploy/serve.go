package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/leader"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// replicationPatience is how long the copy of a Shard object may take. kcp's own replication is slower, but certain.
const replicationPatience = 10 * time.Second

// connect returns an administrator's client of a component.
func (r *rollout) connect(c *topology.Component) (*kcp.Client, error) {
	return kcp.Connect(r.Runtime, c, r.state, r.Now())
}

// throughProxy calls a function with a client of the front-proxy. If none can be reached, it only notes what is not
// done.
func (r *rollout) throughProxy(do func(proxy *kcp.Client) error, notDone ...string) error {
	through := r.frontProxy()
	if through == nil {
		r.Note(notDone...)
		return nil
	}
	proxy, err := r.connect(through)
	if err != nil {
		return err
	}
	defer proxy.Close()
	return do(proxy)
}

// gate asks a component itself whether it serves, and the root shard whether a shard is registered.
func (r *rollout) gate(ctx context.Context, c *topology.Component) error {
	switch c.Kind {
	case topology.Workspace:
		return r.consumes(ctx, c)
	case topology.Kubeconfig:
		return r.bindRoles(ctx, r.changes.of[c.ID()])
	case topology.Agent:
		return r.publishes(ctx, c)
	}
	if !c.Kind.Serves() {
		return nil
	}
	client, err := r.connect(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := r.until(ctx, c, func() error { return client.Ready(ctx) }); err != nil || !c.IsShard() {
		return err
	}
	root, err := r.connect(r.Topology.Root())
	if err != nil {
		return err
	}
	defer root.Close()
	err = r.until(ctx, c, func() error {
		shard, err := registered(ctx, root, c)
		if err != nil {
			return err
		}
		return root.SetLabels(ctx, shard, c.ShardLabels)
	})
	if err != nil || !r.changes.of[c.ID()].isNew && len(r.changes.of[c.ID()].moved) == 0 {
		return err
	}
	r.replicate(ctx, root, c)
	return nil
}

// replicate makes a new shard, or its new URL, known to the scheduler of workspaces at once. It never fails: the root
// shard replicates its Shard objects too.
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
	ctx, cancel := context.WithTimeout(ctx, replicationPatience)
	defer cancel()
	_ = root.ReplicateShard(ctx, cache, shard.ShardName())
}

// registered returns a shard as kcp has it, or an error if it is not registered with the URL that the topology gives
// it.
func registered(ctx context.Context, root *kcp.Client, c *topology.Component) (kcp.Shard, error) {
	shard, err := root.Shard(ctx, c.ShardName())
	if err == nil && shard.BaseURL != c.URL {
		err = fmt.Errorf("registered with the URL %s, not yet %s", shard.BaseURL, c.URL)
	}
	return shard, err
}

// bindRoles gives the user of a kubeconfig the cluster roles that it is declared with.
func (r *rollout) bindRoles(ctx context.Context, c *change) error {
	if len(c.grants) == 0 {
		return nil
	}
	if r.frontProxy() == nil {
		r.Note(fmt.Sprintf("%s: no front-proxy can be reached, so its cluster roles are not bound yet", c.ID()))
		return nil
	}
	options := r.Options.PlanOptions
	options.PKI, options.Waiting = r.state, func(reason string) { r.Component(c.ID(), run.Running, reason) }
	var conflict error
	err := r.until(ctx, c.Component, func() error {
		err := r.Runtime.Apply(ctx, c.grants, options)
		if clierr.Code(err) == clierr.Conflict {
			conflict, err = err, nil // time does not resolve it
		}
		return err
	})
	return cmp.Or(conflict, err)
}

// until retries until it works or ctx ends, and reports why it does not work yet.
func (r *rollout) until(ctx context.Context, c *topology.Component, try func() error) error {
	report := func(reason string) { r.Component(c.ID(), run.Running, reason) }
	err := poll.UntilWorks(ctx, run.PollInterval, report, try)
	if late := (*poll.Expired)(nil); errors.As(err, &late) {
		return &notReady{late.Reason, nil, "", late.Cause}
	}
	return err
}

// reconnect gives front-proxies connections to the new pods of a component that was rolled. Otherwise they keep using
// their connections to the old pods, and lose the requests that are under way when these end. The old pods keep
// serving until then, for the time of their preStop hook. This helps only if the other front-proxies serve in the
// meantime. Components that are rolled at the same time share it. It never fails: without it a request or two may.
func (r *rollout) reconnect(ctx context.Context, c *topology.Component) {
	if !c.Proxied() || !c.Replicated() {
		return
	}
	proxies := slices.DeleteFunc(r.Topology.FrontProxies(), func(p *topology.Component) bool {
		s, err := r.Runtime.State(ctx, p)
		return err != nil || s.Replicas < 2 || !s.Ready
	})
	for _, proxy := range proxies {
		r.Component(c.ID(), run.Running, fmt.Sprintf("new pods serve; %s reconnects to them", proxy.ID()))
	}
	r.reconnects.Do(func() {
		for _, proxy := range proxies {
			if err := r.Runtime.Replace(ctx, proxy); err != nil {
				r.Note(fmt.Sprintf("%s keeps its connections to the old pods of %s, so a request may fail "+
					"when they end: %s",
					proxy.ID(), c.ID(), run.FirstLine(err)))
			}
		}
	})
}

// handOver reports as a step how the lead of a shard's replicas passes to the next one. It never fails.
func (r *rollout) handOver(ctx context.Context, c *topology.Component) {
	client, err := r.connect(c)
	if err != nil {
		return
	}
	defer client.Close()
	step, reported := fmt.Sprintf("leader of %s", c.ID()), ""
	report := func(message string) { reported = message; r.Step(step, run.Running, message) }
	next := leader.HandOver(ctx, leader.Handover{
		Shard: c, Client: client, State: r.Runtime.State, Now: r.Now, Report: report,
	})
	switch {
	case reported == "":
	case next != "":
		r.Step(step, run.Done, next)
	case ctx.Err() == nil:
		r.Step(step, run.Done, reported+"; the next leader starts when its lease ends")
	}
}
