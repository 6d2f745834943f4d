package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// refreshMerged replaces certificates in the contexts that kubeconfig --merge has added to the user's kubeconfig, after
// a phase of a rotation. It fails nothing: the rotation is done, and a note says how to get new contexts.
func (o *rotateOptions) refreshMerged(ctx context.Context, r *rollout) {
	path := userKubeconfig(o.env)
	if path == "" {
		return
	}
	s := r.session
	state, err := s.loadPKI(ctx)
	var done kubeconfig.Refreshed
	if err == nil {
		done, err = kubeconfig.Refresh(ctx, path, refreshOptions(s, r.state, state))
	}
	if err != nil {
		o.env.note(fmt.Sprintf("the contexts of kcp %q in %s were not updated: %s; to update them, run %s",
			s.topology.Name,
			path, firstLine(err.Error()), o.setup.command("kubeconfig --merge")))
		return
	}
	if len(done.Updated) > 0 {
		o.env.note(fmt.Sprintf("updated the contexts %s in %s", strings.Join(done.Updated, ", "), path))
	}
	for _, c := range done.Stale {
		o.env.note(fmt.Sprintf("the certificate of the context %s in %s is no longer accepted: run %s", c.Context, path,
			o.setup.command("kubeconfig"+mintFlags(c, s.topology.Name)+" --merge")))
	}
}

// mintFlags are the flags that mint the client certificate of a context again.
func mintFlags(c kubeconfig.Stale, setup string) string {
	flags := " --user " + quote(c.User)
	for _, group := range c.Groups {
		if group != mintedGroup(c.User) {
			flags += " --group " + quote(group)
		}
	}
	if c.Context != setup {
		flags += " --context-name " + quote(c.Context)
	}
	return flags
}

// refreshOptions are what has changed between two states of the PKI.
func refreshOptions(s *session, before, after *pki.State) kubeconfig.RefreshOptions {
	change := func(ca topology.CA) kubeconfig.Change {
		return kubeconfig.Change{Before: before.CAs[ca].Trusted(), After: after.CAs[ca].Trusted()}
	}
	o := kubeconfig.RefreshOptions{
		Owner: s.owner(after), Server: change(topology.ServerCA), Client: change(topology.ClientCA),
	}
	for _, c := range s.topology.OfKind(topology.Kubeconfig) {
		for _, cert := range pki.CertsOf(s.topology, c) {
			if pair, ok := after.Leaves[cert.Key()]; ok {
				o.Current = append(o.Current, pair)
			}
		}
	}
	return o
}
