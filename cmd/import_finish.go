package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/kube/adopt"
	"github.com/kcpctl/kcpctl/internal/operator"
	"github.com/kcpctl/kcpctl/internal/run"
)

// removeRemains removes what kcp-operator has left of an installation that the setup has taken over.
func (o *importOptions) removeRemains(ctx context.Context) error {
	s, err := openSetup(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	installation, err := openOperator(o.env, &o.setup, s.topology.Home)
	if err != nil {
		return err
	}
	remains, err := installation.Remains(ctx)
	if err != nil {
		return err
	}
	if remains.Empty() {
		fmt.Fprintf(o.env.Streams.Err, "kcp-operator has left nothing to remove in %s.\n", installation.Where())
		return nil
	}
	if !o.yes {
		yes, err := o.env.Streams.Confirm(ctx, fmt.Sprintf("Remove %s and %s of kcp-operator from %s?",
			plural(len(remains.Servers), "Deployment", "Deployments"), plural(len(remains.Objects), "object", "objects"), installation.Where()))
		if err != nil || !yes {
			return err
		}
	}
	end := s.reporter.begin(ctx, fmt.Sprintf("remove kcp-operator's part of kcp %q from %s", s.topology.Name, installation.Where()), "")
	err = (&run.TakeOver{
		Topology: s.topology, Runtime: s.runtime, Predecessor: predecessor{installation, remains}, Name: operator.ManagedBy,
		Observe: s.reporter.observe, Now: o.env.Now,
	}).Run(ctx)
	end()
	if err == nil && len(remains.Authorities) > 0 {
		fmt.Fprintf(o.env.Streams.Err, "The keys of the authorities are in %s now. kcp-operator's copies are in the Secrets %s: "+
			"back up the keys with %s, then delete these Secrets.\n",
			s.store(), strings.Join(remains.Authorities, ", "), o.setup.command("certs export DIR"))
	}
	return err
}

// predecessor is the installation of kcp-operator, and what it has left.
type predecessor struct {
	*adopt.Installation
	remains *adopt.Remains
}

// StopServers implements run.Predecessor.
func (p predecessor) StopServers(ctx context.Context) error {
	return p.Installation.StopServers(ctx, p.remains)
}

// RemoveObjects implements run.Predecessor.
func (p predecessor) RemoveObjects(ctx context.Context) error {
	return p.Installation.RemoveObjects(ctx, p.remains)
}
