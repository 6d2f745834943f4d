package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/dag"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/ready"
	"github.com/kcpctl/kcpctl/internal/topology"
)

const (
	pollInterval = 250 * time.Millisecond
	// patience is how long a component may be stuck on a cluster before the wait for it ends: a missing image may still be
	// pushed, a crash may be a start in the wrong order. On this machine nobody else starts it again.
	patience = 30 * time.Second
	// atOnce limits how many components are worked on at a time.
	atOnce = 32
)

// Each component is two nodes of the graph: it is started, and it is ready.
type node string

func started(id topology.ID) node { return node(id) + " started" }
func isReady(id topology.ID) node { return node(id) }

// answers is a third node of the root shard: it answers what others ask it for while they start.
func answers(id topology.ID) node { return node(id) + " answers" }

// led is a fourth node of a shard that is changed: the next leader of its replicas runs the controllers.
func led(id topology.ID) node { return node(id) + " led" }

// String names the component.
func (n node) String() string {
	id, _, _ := strings.Cut(string(n), " ")
	return id
}

// graph says what starts when. A component that is changed waits until all that it needs is ready; one that is new starts
// as soon as those answer that its own process waits for. In a serial run those that are changed follow one another.
func (u *Up) graph(p *plan.Plan) map[node][]node {
	needs, chosen, serial := map[node][]node{}, map[topology.ID]bool{}, u.serial(p)
	for _, c := range u.chosen() {
		chosen[c.ID()] = true
	}
	for _, c := range u.chosen() {
		ready, start := []node{started(c.ID())}, []node{}
		turn := slices.Index(serial, c.ID())
		for _, n := range c.Needs {
			if !chosen[n] || turn >= 0 && slices.Index(serial, n) > turn {
				continue // it runs already
			}
			ready = append(ready, isReady(n))
			switch {
			case !slices.Contains(c.Awaits, n) || !isNew(p, c):
				start = append(start, isReady(n))
			case n.Kind() == topology.RootShard:
				start = append(start, answers(n))
				needs[answers(n)] = []node{started(n)}
			default:
				start = append(start, started(n))
			}
		}
		if turn > 0 {
			start = append(start, isReady(serial[turn-1]))
		}
		needs[started(c.ID())], needs[isReady(c.ID())] = start, ready
		if hasLeader(c) && rolls(p, c) {
			needs[led(c.ID())] = []node{isReady(c.ID())}
		}
	}
	return needs
}

// serial are the running components that a run changes, in their order: servers of virtual workspaces come before the
// front-proxies, which are what clients notice most.
func (u *Up) serial(p *plan.Plan) []topology.ID {
	var out, proxies []topology.ID
	for _, c := range u.chosen() {
		switch {
		case !rolls(p, c):
		case c.Kind == topology.FrontProxy:
			proxies = append(proxies, c.ID())
		case c.Kind == topology.Kubeconfig:
			out, proxies = append(append(out, proxies...), c.ID()), nil
		default:
			out = append(out, c.ID())
		}
	}
	return append(out, proxies...)
}

// rolls tells whether a running component is changed.
func rolls(p *plan.Plan, c *topology.Component) bool { return len(p.Of(c.ID())) > 0 && !isNew(p, c) }

// isNew tells whether a component does not run yet.
func isNew(p *plan.Plan, c *topology.Component) bool {
	return slices.ContainsFunc(p.Of(c.ID()), func(it plan.Item) bool {
		return it.Action == plan.Create && (it.Kind == "Deployment" || it.Kind == "StatefulSet")
	})
}

// components applies every component once it may start, and waits until it is ready.
func (u *Up) components(ctx context.Context, res *Result) error {
	work := map[node]func(context.Context) error{}
	for _, c := range u.chosen() {
		work[started(c.ID())] = func(ctx context.Context) error { return u.start(ctx, c, res) }
		work[isReady(c.ID())] = func(ctx context.Context) error { return u.finishComponent(ctx, c, res) }
		work[led(c.ID())] = func(ctx context.Context) error { return u.handOver(ctx, c, res.PKI.State) }
		if c.Kind == topology.RootShard {
			work[answers(c.ID())] = func(ctx context.Context) error { return u.awaitAnswers(ctx, c, res.PKI.State) }
		}
		u.emit(Event{Scope: Component, Name: string(c.ID()), Status: Pending, Needs: names(u.chosenOf(c.Needs))})
	}
	if u.Options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, u.Options.Timeout, errTimeout{u.Options.Timeout})
		defer cancel()
	}
	results, err := dag.Run(ctx, u.graph(res.Plan), atOnce, func(ctx context.Context, n node) error { return work[n](ctx) })
	if err != nil {
		return err
	}
	errs := map[topology.ID]error{}
	for _, c := range u.chosen() {
		id := c.ID()
		if errs[id] = results[started(id)]; errs[id] == nil {
			errs[id] = results[isReady(id)]
		}
		if errors.Is(errs[id], dag.ErrSkipped) {
			u.component(id, Skipped, strings.TrimPrefix(errs[id].Error(), dag.ErrSkipped.Error()+": "))
		}
	}
	return u.summarize(ctx, errs)
}

// start applies a component.
func (u *Up) start(ctx context.Context, c *topology.Component, res *Result) error {
	items := pending(res.Plan, c)
	if len(items) == 0 {
		return nil
	}
	u.component(c.ID(), Running, "applying "+count(len(items), "object", "objects"))
	if err := u.Runtime.Apply(ctx, items, u.Options.PlanOptions); err != nil {
		u.component(c.ID(), Failed, firstLine(err))
		return err
	}
	msg := "started"
	if len(c.Awaits) > 0 && isNew(res.Plan, c) {
		msg += ", waits for " + strings.Join(names(c.Awaits), ", ")
	}
	u.component(c.ID(), Running, msg)
	return nil
}

// pending are the objects of a component that are still to be applied: namespaces came first.
func pending(p *plan.Plan, c *topology.Component) []plan.Item {
	return slices.DeleteFunc(p.Of(c.ID()), func(it plan.Item) bool { return it.Kind == "Namespace" && it.Action == plan.Create })
}

// finishComponent waits until a component is ready and serves.
func (u *Up) finishComponent(ctx context.Context, c *topology.Component, res *Result) error {
	state, err := u.waitReady(ctx, c)
	if err == nil && !res.Plan.Empty() {
		err = u.gate(ctx, c, res.PKI.State)
	}
	if err != nil {
		u.component(c.ID(), Failed, firstLine(err))
		if c.Kind == topology.RootShard {
			u.failed.Store(true)
		}
		return err
	}
	u.reconnect(ctx, c, res.Plan)
	u.component(c.ID(), Done, doneMessage(state, len(pending(res.Plan, c))))
	return nil
}

// awaitAnswers waits until the root shard tells the identities of kcp's APIs. A shard that starts then has done what it can
// do alone by the time the root shard is ready; one that starts earlier only tries again and again, ever more rarely.
func (u *Up) awaitAnswers(ctx context.Context, root *topology.Component, s *pki.State) error {
	client, err := Connect(u.Runtime, root, s, u.Now())
	if err != nil {
		return err
	}
	for client.Identified(ctx) != nil {
		if u.failed.Load() {
			return errRootFailed
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollInterval):
		}
	}
	return nil
}

// errRootFailed ends the wait for a root shard that does not become ready. What it needs says why.
var errRootFailed = errors.New("the root shard failed")

// waitReady waits until the runtime calls a component ready.
func (u *Up) waitReady(ctx context.Context, c *topology.Component) (ready.State, error) {
	var stuckSince time.Time
	reported := ""
	for {
		s, err := u.Runtime.State(ctx, c)
		switch {
		case err != nil && ctx.Err() == nil:
			s.Reason = err.Error() // a lost connection heals, or the time is up
		case err == nil && s.Ready:
			return s, nil
		}
		if msg := waitMessage(s); ctx.Err() == nil && msg != reported {
			reported = msg
			u.component(c.ID(), Running, msg)
		}
		if !s.Stuck {
			stuckSince = time.Time{}
		} else if stuckSince.IsZero() {
			stuckSince = u.Now()
		} else if u.Topology.Local || u.Now().Sub(stuckSince) > patience {
			return s, &notReady{reported, s.Detail, s.Next, nil}
		}
		select {
		case <-ctx.Done():
			return s, &notReady{reported, s.Detail, s.Next, context.Cause(ctx)}
		case <-time.After(pollInterval):
		}
	}
}

// notReady is the error of a component that did not become ready.
type notReady struct {
	reason string
	detail []string
	// next is the command that repairs it, where there is one.
	next  string
	cause error
}

func (e *notReady) Error() string {
	msg := "not ready"
	if e.cause != nil && !errors.Is(e.cause, context.Canceled) {
		msg += " (" + e.cause.Error() + ")"
	}
	if e.reason != "" {
		msg += ": " + e.reason
	}
	for _, line := range e.detail {
		msg += "\n    " + line
	}
	return msg
}

func (e *notReady) Unwrap() error { return e.cause }

type errTimeout struct{ after time.Duration }

func (e errTimeout) Error() string { return fmt.Sprintf("timed out after %s", e.after) }

// summarize makes one error of those of the components.
func (u *Up) summarize(ctx context.Context, errs map[topology.ID]error) error {
	code, skipped, hint := 0, 0, ""
	var msgs []string
	for _, c := range u.Topology.Components {
		err := errs[c.ID()]
		var nr *notReady
		switch {
		case err == nil:
			continue
		case errors.Is(err, dag.ErrSkipped):
			skipped++
			continue
		case errors.As(err, &nr), errors.As(err, new(errTimeout)):
			code = max(code, clierr.NotReady)
			if nr != nil && nr.next != "" {
				hint = cmp.Or(hint, nr.next+" repairs it; then run the same command again: what is done is kept")
			}
		default:
			code = max(code, clierr.Code(err))
		}
		msgs, hint = append(msgs, fmt.Sprintf("%s: %v", c.ID(), err)), cmp.Or(hint, clierr.Hint(err))
	}
	if len(msgs) == 0 {
		return nil
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return clierr.New(clierr.Interrupted, "run the same command again: it continues", "interrupted; what is done is kept")
	}
	if skipped > 0 {
		msgs = append(msgs, count(skipped, "component that needs them was", "components that need them were")+" skipped")
	}
	hint = cmp.Or(hint, "repair the cause and run the same command again: what is done is kept")
	return clierr.New(code, hint, "%s", strings.Join(msgs, "\n"))
}

func waitMessage(s ready.State) string {
	switch {
	case s.Reason != "":
		return s.Reason
	case s.Replicas > 0:
		return fmt.Sprintf("%d/%d ready", s.ReadyReplicas, s.Replicas)
	}
	return "starting"
}

func doneMessage(s ready.State, applied int) string {
	switch {
	case s.Replicas > 0 && applied > 0:
		return fmt.Sprintf("ready %d/%d", s.ReadyReplicas, s.Replicas)
	case s.Replicas > 0:
		return fmt.Sprintf("ready %d/%d, unchanged", s.ReadyReplicas, s.Replicas)
	case applied > 0:
		return count(applied, "object", "objects") + " applied"
	}
	return "unchanged"
}

func names(ids []topology.ID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, string(id))
	}
	return out
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
