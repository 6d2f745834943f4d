package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/leader"
	"github.com/kcpctl/kcpctl/internal/kit/dag"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

const (
	// patience is how long a component may be stuck on a cluster before the wait for it ends: a missing image may still
	// be pushed, a crash may be a start in the wrong order. On this machine no controller restarts it.
	patience = 30 * time.Second
	// atOnce limits how many components are applied, and how many shards are tested, concurrently. Any number may wait.
	atOnce = 32
)

// phase is a part of the rollout of a component.
type phase int

const (
	// applied: its objects are applied.
	applied phase = iota
	// answers: a root shard returns the identities of kcp's APIs, which new components wait for while they start.
	answers
	// serves: it is ready, and registered if it is a shard.
	serves
	// led: a replica of a shard that was rolled, or started again, runs the controllers.
	led
	// refreshed: a root shard that began with outdated base URLs of other shards has started again.
	refreshed
	// proven: a workspace on a shard was created and read through a front-proxy.
	proven
)

// node is a phase of a component in the graph of a rollout.
type node struct {
	component topology.ID
	phase     phase
}

// String names the component.
func (n node) String() string { return string(n.component) }

func (n node) compare(other node) int {
	return cmp.Or(cmp.Compare(n.component, other.component), cmp.Compare(n.phase, other.phase))
}

// rollout applies the changes of a run, component by component, and waits until they serve.
type rollout struct {
	*Up
	changes *changes
	state   *pki.State
	// verify is false if nothing is changed: then readiness is enough, and kcp is not asked.
	verify bool
	// replaced means that members of etcds with the previous authority and with the new one reject each other.
	replaced bool
	waits    map[topology.ID]*wait
	// applying limits how many components are applied concurrently.
	applying *semaphore.Weighted
	// restarting lets one restart of an agent follow another.
	restarting *semaphore.Weighted
	// canaries test the shards.
	canaries *canaries
	// reconnects are the replacements of front-proxies.
	reconnects parallel.Batch
	// restarts are those after the base URL of a shard has changed. They include front-proxies with one replica.
	restarts parallel.Batch
	// helpers help new shards to start, until they serve.
	helpers sync.WaitGroup
	// outdated are the shards of which the root shard had another base URL when it started.
	outdated []topology.ID
}

// wait is the state of a wait for a component, over all its phases.
type wait struct {
	reported   string
	stuckSince time.Time
	// stopHelp ends the help for a new shard.
	stopHelp context.CancelFunc
}

// components applies every component as soon as it may start, waits until it serves, and tests the shards.
func (u *Up) components(ctx context.Context, res *Result) error {
	r := &rollout{
		Up: u, changes: changesOf(u.Topology, u.scope(), res.Plan, u.Options.Parallel), state: res.PKI.State,
		verify:   !res.Plan.Empty(),
		replaced: slices.Contains(res.replaced, pki.RotationOf(topology.EtcdCA).Key()),
		waits:    map[topology.ID]*wait{},
		applying: semaphore.NewWeighted(atOnce), restarting: semaphore.NewWeighted(1),
	}
	for _, c := range r.changes.all {
		c.moved = res.moved[c.ID()]
		r.waits[c.ID()] = &wait{stopHelp: func() {}}
		u.Emit(run.Event{Scope: run.Component, Name: string(c.ID()), Status: run.Pending, Needs: run.Names(c.needs)})
	}
	ctx, cancel := run.WithTimeout(ctx, u.Options.Timeout)
	defer cancel()
	graph := r.changes.graph()
	var err error
	if r.canaries, err = r.newCanaries(); err != nil {
		return err
	}
	defer r.canaries.close()
	r.canaries.extend(graph, r.changes)
	ctx, stop := context.WithCancel(ctx)
	defer r.helpers.Wait()
	defer stop()
	r.helpers.Go(func() { r.announceRecords(ctx) })
	results, err := dag.Run(ctx, graph, node.compare, len(graph), r.do)
	if err != nil {
		return err
	}
	errs := map[topology.ID]error{}
	for _, c := range r.changes.all {
		id := c.ID()
		for _, p := range []phase{applied, answers, serves, refreshed} {
			if errs[id] = results[node{id, p}]; errs[id] != nil {
				break
			}
		}
		if errors.Is(errs[id], dag.ErrSkipped) {
			r.skipped(id, errs[id], results)
		}
	}
	return r.canaries.finish(ctx, results, u.summarize(ctx, errs))
}

// skipped reports a component whose turn did not come: something that it needs has failed, or the user has ended the
// run before that.
func (r *rollout) skipped(id topology.ID, err error, results map[node]error) {
	why := strings.TrimPrefix(err.Error(), dag.ErrSkipped.Error()+": ")
	need, _ := strings.CutSuffix(why, " failed")
	for n, err := range results {
		if n.String() == need && errors.Is(err, context.Canceled) {
			r.notStarted(id, err)
			return
		}
	}
	r.Component(id, run.Skipped, why)
}

// notStarted reports a component whose turn had not come when the run ended.
func (r *rollout) notStarted(id topology.ID, cause error) {
	if errors.Is(cause, context.Canceled) {
		r.Component(id, run.NotStarted, "")
		return
	}
	r.Component(id, run.Skipped, cause.Error())
}

// graph returns what each phase of each component waits for. A component that is changed is applied once everything
// that it needs serves; a new one as soon as the components answer that its own process waits for. Running components
// that are changed follow one another.
func (cs *changes) graph() map[node][]node {
	needs := map[node][]node{}
	for _, c := range cs.all {
		start, finish := []node{}, []node{{c.ID(), applied}}
		for _, id := range c.needs {
			if c.turn >= 0 && cs.of[id].turn > c.turn || c.early && !cs.of[id].isFirst() {
				continue // it runs already, and is changed later
			}
			finish = append(finish, node{id, serves})
			switch {
			case !c.isNew || !c.awaits(id):
				start = append(start, node{id, serves})
			case id.Kind() == topology.RootShard:
				start = append(start, node{id, answers})
				needs[node{id, answers}] = []node{{id, applied}}
			default:
				start = append(start, node{id, applied})
			}
		}
		if c.hands != "" {
			start = append(start, node{c.hands, serves})
		}
		for _, id := range c.after {
			start = append(start, node{id, serves})
		}
		needs[node{c.ID(), applied}] = start
		needs[node{c.ID(), serves}] = append(needs[node{c.ID(), serves}], finish...)
		if (c.rolls || c.isNew) && leader.Has(c.Component) {
			needs[node{c.ID(), led}] = []node{{c.ID(), serves}}
		}
	}
	for n := range needs {
		if n.phase == answers {
			serving := node{n.component, serves}
			needs[serving] = append(needs[serving], n)
		}
	}
	return needs
}

// do works on a phase of a component.
func (r *rollout) do(ctx context.Context, n node) error {
	c := r.changes.of[n.component]
	switch n.phase {
	case proven:
		return r.canaries.test(ctx, n.component)
	case applied:
		return r.apply(ctx, c)
	case answers:
		return r.awaitAnswers(ctx, c)
	case led:
		r.handOver(ctx, c.Component)
		return nil
	case refreshed:
		return r.restartOutdated(ctx)
	}
	return r.finish(ctx, c)
}

// apply applies a component.
func (r *rollout) apply(ctx context.Context, c *change) error {
	if len(c.items) == 0 {
		return r.restartTogether(ctx, c)
	}
	if err := r.applying.Acquire(ctx, 1); err != nil {
		err = context.Cause(ctx)
		r.notStarted(c.ID(), err)
		return err
	}
	defer r.applying.Release(1)
	r.Component(c.ID(), run.Running, "applying "+plan.Things(c.items))
	options := r.Options.PlanOptions
	options.PKI, options.Waiting = r.state, func(reason string) { r.Component(c.ID(), run.Running, reason) }
	if err := r.write(ctx, c, options); err != nil {
		return r.Failed(c.ID(), err)
	}
	if err := r.restartTogether(ctx, c); err != nil {
		return err
	}
	if _, outside := plan.InWorkspaces(c.items); len(outside) == 0 {
		return nil
	}
	msg := "started"
	if len(c.Awaits) > 0 && c.isNew {
		msg += ", waits for " + strings.Join(run.Names(c.Awaits), ", ")
	}
	r.Component(c.ID(), run.Running, msg)
	if c.isNew && c.IsShard() {
		return r.help(ctx, c)
	}
	return nil
}

// restartTogether restarts all members of an etcd whose authority was replaced without a rotation. A member reads the
// authorities that it trusts only when it starts, so that the first one with the new authority could not join the
// others, and a roll, which waits for it, would never go on. They have no quorum until most of them have the new one.
func (r *rollout) restartTogether(ctx context.Context, c *change) error {
	if !r.replaced || !r.verify || c.Kind != topology.Etcd || c.Replicas < 2 || c.isNew {
		return nil
	}
	r.Note(string(c.ID()) + ": all members restart together, because their certificate authority was replaced")
	return r.Failed(c.ID(), r.Runtime.ReplaceOutdated(ctx, c.Component))
}

// help lets a new shard start without the pauses of a kcp that has several API servers (see Client.EstablishCRDs).
func (r *rollout) help(ctx context.Context, shard *change) error {
	client, err := r.connect(shard.Component)
	if err != nil {
		return err
	}
	ctx, r.waits[shard.ID()].stopHelp = context.WithCancel(ctx)
	r.helpers.Go(func() {
		defer client.Close()
		client.EstablishCRDs(ctx)
	})
	return nil
}

// awaitAnswers waits until the root shard returns the identities of kcp's APIs. A shard that starts then is ready
// about as soon as the root shard. One that starts earlier retries with growing pauses.
func (r *rollout) awaitAnswers(ctx context.Context, root *change) error {
	client, err := r.connect(root.Component)
	if err != nil {
		return r.Failed(root.ID(), err)
	}
	defer client.Close()
	_, err = r.await(ctx, root, func(s ready.State, _ error) (string, bool) {
		err := client.Identified(ctx)
		if err != nil && s.Ready {
			return err.Error(), false
		}
		return run.WaitMessage(s), err == nil
	})
	if err != nil {
		return err
	}
	return r.Failed(root.ID(), r.findOutdated(ctx, client))
}

// finish waits until a component is ready and serves.
func (r *rollout) finish(ctx context.Context, c *change) error {
	defer r.waits[c.ID()].stopHelp()
	state, err := r.await(ctx, c,
		func(s ready.State, err error) (string, bool) { return run.WaitMessage(s), err == nil && s.Ready })
	if err == nil && r.verify {
		err = r.Failed(c.ID(), r.gate(ctx, c.Component))
	}
	if err == nil {
		err = r.applyAliases(ctx, c)
	}
	if err != nil {
		return err
	}
	switch {
	case len(c.moved) > 0:
		if err := r.restartProxies(ctx, c); err != nil {
			return r.Failed(c.ID(), err)
		}
	case c.rolls:
		r.reconnect(ctx, c.Component)
	}
	r.Component(c.ID(), run.Done, doneMessage(state, slices.Concat(c.items, c.aliases, c.grants)))
	return nil
}

// applyAliases lets the additional Services lead to a component that serves.
func (r *rollout) applyAliases(ctx context.Context, c *change) error {
	if len(c.aliases) == 0 {
		return nil
	}
	return r.Failed(c.ID(), r.Runtime.Apply(ctx, c.aliases, r.Options.PlanOptions))
}

// await polls the state of a component until it is as it should be, and reports what it waits for. It fails if the
// component is stuck for too long, or if ctx ends.
func (r *rollout) await(
	ctx context.Context, c *change, until func(ready.State, error) (reason string, ok bool),
) (ready.State, error) {
	w := r.waits[c.ID()]
	fail := func(s ready.State, cause error) (ready.State, error) {
		return s, r.Failed(c.ID(), &notReady{w.reported, s.Detail, s.Next, cause})
	}
	for {
		s, err := r.Runtime.State(ctx, c.Component)
		reason, ok := until(s, err)
		if ok {
			return s, nil
		}
		if err != nil {
			reason = err.Error() // a lost connection recovers, or the time runs out
		}
		if ctx.Err() == nil && reason != w.reported {
			w.reported = reason
			r.Component(c.ID(), run.Running, reason)
		}
		if !s.Stuck {
			w.stuckSince = time.Time{}
		} else if w.stuckSince.IsZero() {
			w.stuckSince = r.Now()
		} else if r.Topology.Local() || r.Now().Sub(w.stuckSince) > patience {
			return fail(s, nil)
		}
		if err := poll.Pause(ctx, run.PollInterval); err != nil {
			return fail(s, err)
		}
	}
}

func doneMessage(s ready.State, applied []plan.Item) string {
	switch {
	case s.Replicas > 0 && len(applied) > 0:
		return fmt.Sprintf("ready %d/%d", s.ReadyReplicas, s.Replicas)
	case s.Replicas > 0:
		return fmt.Sprintf("ready %d/%d, unchanged", s.ReadyReplicas, s.Replicas)
	case len(applied) > 0:
		return plan.Things(applied) + " applied"
	}
	return "unchanged"
}
