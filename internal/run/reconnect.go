package run

import (
	"context"
	"fmt"

	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// reconnect gives front-proxies connections to the new pods of a component that has been rolled. They would use those that they
// have for as long as the former pods are there, and lose what they ask of them in the moment of their end. The former pods
// serve on until then, for as long as their preStop lasts. It is only worth it where nobody else stops to serve meanwhile.
// It never fails: what is lost is a request or two.
func (u *Up) reconnect(ctx context.Context, c *topology.Component, p *plan.Plan) {
	if !c.Proxied() || c.Replicas < 2 || !rolls(p, c) {
		return
	}
	for _, proxy := range u.Topology.OfKind(topology.FrontProxy) {
		if s, err := u.Runtime.State(ctx, proxy); proxy.Replicas < 2 || err != nil || !s.Ready {
			continue
		}
		u.component(c.ID(), Running, fmt.Sprintf("its new pods serve; %s connects to them", proxy.ID()))
		if err := u.Runtime.Replace(ctx, proxy); err != nil {
			u.emit(Event{Scope: Note, Message: fmt.Sprintf("%s keeps its connections to the former pods of %s, and a request may fail when they end: %s",
				proxy.ID(), c.ID(), firstLine(err))})
		}
	}
}
