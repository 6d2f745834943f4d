package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// atOnce is how many connections are tried concurrently.
const atOnce = 16

// Prepare reads what the health checks have in common: the PKI, and which components are ready.
func (s *Subject) Prepare(ctx context.Context) error {
	s.facts = s.Runtime.Facts()
	var err error
	if s.state, err = s.Runtime.Store().Load(ctx); err != nil {
		return err
	}
	type answer struct {
		state ready.State
		err   error
	}
	running := s.Topology.Running()
	answers := parallel.Map(atOnce, running, func(c *topology.Component) (a answer) {
		a.state, a.err = s.Runtime.State(ctx, c)
		return a
	})
	s.states = map[topology.ID]ready.State{}
	for i, c := range running {
		if s.lost(c.Cluster.Name) {
			continue
		}
		if answers[i].err != nil {
			return answers[i].err
		}
		s.states[c.ID()] = answers[i].state
	}
	return nil
}

// notInstalled reports whether the setup is not on this machine. Its ports are not chosen then: whatever listens there
// does not belong to it.
func (s *Subject) notInstalled(ctx context.Context) bool {
	if s.facts.Machine == nil {
		return false
	}
	known, err := s.Runtime.Record(ctx)
	if err != nil || !known.Empty() {
		return false
	}
	objects, err := s.Runtime.Objects(ctx)
	return err == nil && len(objects) == 0
}

// Close closes the connections that checks have opened.
func (s *Subject) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.Close()
	}
	s.clients = nil
}

// every asks about all items concurrently, and joins the outcomes in their order.
func every[T any](items []T, ask func(T) outcome) (o outcome) {
	for _, found := range parallel.Map(atOnce, items, ask) {
		o.absorb("", found)
	}
	return o
}

// servers returns the components of some kinds, or of all kinds, that have a ready replica. Agents, the controller of
// workloads and syncers serve only metrics and probes, without TLS.
func (s *Subject) servers(kinds ...topology.Kind) []*topology.Component {
	return slices.DeleteFunc(s.Topology.Running(), func(c *topology.Component) bool {
		return !s.serves(c.ID()) || c.Kind.Tenant() || len(kinds) > 0 && !slices.Contains(kinds, c.Kind)
	})
}

// eachServer examines the components that servers returns.
func (s *Subject) eachServer(examine func(*topology.Component) outcome) outcome {
	if len(s.servers()) == 0 {
		return skipped("no component is ready")
	}
	all := slices.DeleteFunc(s.Topology.Running(), func(c *topology.Component) bool { return c.Kind.Tenant() })
	return s.eachOf(all, examine)
}

// eachOf examines the components of a list that serve. It does not pass without the others.
func (s *Subject) eachOf(all []*topology.Component, examine func(*topology.Component) outcome) outcome {
	var serve, others []*topology.Component
	for _, c := range all {
		if s.serves(c.ID()) {
			serve = append(serve, c)
		} else {
			others = append(others, c)
		}
	}
	o := every(serve, examine)
	o.notExamined("not ready", others)
	return o
}

// serves reports whether a component has a ready replica.
func (s *Subject) serves(id topology.ID) bool {
	st := s.states[id]
	return st.Ready || st.ReadyReplicas > 0
}

// client returns an administrator's client of a component.
func (s *Subject) client(c *topology.Component) (*kcp.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.clients[c.ID()]; have != nil {
		return have, nil
	}
	made, err := kcp.Connect(s.Runtime, c, s.state, s.Now())
	if err != nil {
		return nil, err
	}
	if s.clients == nil {
		s.clients = map[topology.ID]*kcp.Client{}
	}
	s.clients[c.ID()] = made
	return made, nil
}

// root returns a client of the root shard, if it serves.
func (s *Subject) root() (*kcp.Client, error) {
	if !s.serves(s.Topology.Root().ID()) {
		return nil, fmt.Errorf("%w: the root shard is not ready", ErrUnknown)
	}
	return s.client(s.Topology.Root())
}

func (s *Subject) dialer(c *topology.Component) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return s.Runtime.Dial(ctx, c) }
}

func componentsReady(ctx context.Context, s *Subject) (o outcome) {
	if s.notInstalled(ctx) {
		o.fail("kcp %q is not installed on this machine", s.Topology.Name)
		o.fix = "run kcpctl up"
		return o
	}
	o = s.unknownComponents()
	ended := s.facts.Machine != nil
	waiting := slices.DeleteFunc(s.Topology.Running(), func(c *topology.Component) bool {
		return s.states[c.ID()].Ready || s.lost(c.Cluster.Name)
	})
	failed := parallel.Map(atOnce, waiting, func(c *topology.Component) string { return s.failedChecks(ctx, c) })
	for i, c := range waiting {
		st := s.states[c.ID()]
		why := st.Reason
		if why == "" {
			why = fmt.Sprintf("%d/%d ready", st.ReadyReplicas, st.Replicas)
		}
		why += failed[i]
		if st.Next != "" {
			why += " (repair it with: " + st.Next + ")"
		}
		o.fail("%s: %s", s.named(c), why)
		ended = ended && st.Stuck
	}
	if ended {
		o.fix = "run kcpctl up, which starts what does not run"
	}
	return o
}

// failedChecks returns which parts of a kcp server are not ready: a probe in a cluster only says that it failed.
func (s *Subject) failedChecks(ctx context.Context, c *topology.Component) string {
	if len(s.states[c.ID()].Pods) == 0 || c.Kind == topology.Etcd || c.Kind.Tenant() {
		return ""
	}
	if failed, ok := errors.AsType[kcp.FailedChecks](s.askReady(ctx, c)); ok {
		return "; " + failed.Error()
	}
	return ""
}

// readyz asks every server whether it is ready.
func readyz(ctx context.Context, s *Subject) outcome {
	return s.eachServer(func(c *topology.Component) (o outcome) {
		ask := s.askReady
		if c.Kind == topology.Etcd {
			ask = s.askEtcd
		}
		if err := ask(ctx, c); err != nil {
			o.fail("%s: %s", s.named(c), reason(ctx, err))
			o.fix = clierr.Hint(err)
		}
		return o
	})
}

func (s *Subject) askReady(ctx context.Context, c *topology.Component) error {
	client, err := s.client(c)
	if err != nil {
		return err
	}
	return client.Ready(ctx)
}

// askEtcd asks an etcd for its health.
func (s *Subject) askEtcd(ctx context.Context, c *topology.Component) error {
	client := s.etcd(c)
	defer client.Close()
	a, err := client.Get(ctx, "/health", nil)
	if err != nil {
		return err
	}
	if a.Code != http.StatusOK {
		return fmt.Errorf("/health: %s", a.Message)
	}
	return nil
}
