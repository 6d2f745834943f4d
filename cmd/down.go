package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

type downOptions struct {
	env    *Env
	setup  setupFlags
	yes    bool
	purge  bool
	orphan []string
	output string
}

func newDownCmd(env *Env) *cobra.Command {
	o := &downOptions{env: env}
	c := &cobra.Command{
		Use:   "down",
		Short: "Remove what up applied",
		Long: `Down removes what up applied, each component before its dependencies. Data, certificate authorities and
namespaces stay, so that a later up continues with them; --purge removes them, too.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.setup.add(c.Flags())
	o.setup.addAllowOtherCluster(c.Flags())
	addYes(c.Flags(), &o.yes)
	c.Flags().BoolVar(&o.purge, "purge", false,
		"also remove data, certificate authorities, history, and the namespaces that up created")
	c.Flags().StringSliceVar(&o.orphan, run.FlagOrphan, nil,
		"with --purge: agent that is removed although workspaces have objects of its APIs; their copies on its cluster stay (repeatable)")
	completeFlag(c, run.FlagOrphan, o.setup.names(env, agentIDs))
	addEvents(c, &o.output)
	return c
}

func (o *downOptions) run(ctx context.Context) error {
	s, err := openSetup(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	objects, err := s.runtime.Objects(ctx)
	if err != nil {
		return err
	}
	if len(objects) == 0 && !o.purge {
		fmt.Fprintf(o.env.Streams.Err, "kcp %q is not deployed: nothing to remove from %s.\n",
			s.topology.Name, s.runtime.Where())
		return nil
	}
	down := &run.Down{
		Runtime: s.runtime, Topology: s.topology, Purge: o.purge, Orphan: idsOfNames(o.orphan), Now: o.env.Now, Observe: s.reporter.observe,
	}
	if !o.yes {
		yes, err := o.env.Streams.Confirm(ctx, o.question(s, len(objects)))
		if err != nil || !yes {
			return err
		}
		down.Shown = append([]plan.Item{}, objects...)
	}
	contexts := o.mergedContexts(ctx, s) // the PKI that identifies them is about to be removed
	end := s.reporter.begin(ctx, fmt.Sprintf("remove kcp %q from %s", s.topology.Name, s.runtime.Where()), o.output)
	err = down.Run(ctx)
	end()
	if err != nil || !o.purge {
		return err
	}
	return o.removeContexts(ctx, contexts)
}

func (o *downOptions) question(s *session, objects int) string {
	what := fmt.Sprintf("Remove %s of kcp %q from %s", plural(objects, "object", "objects"), s.topology.Name, s.runtime.Where())
	if o.purge && s.runtime.KeepsPKI() {
		return what + fmt.Sprintf(" and all its data? This cannot be undone. Certificate authorities stay in %s.", s.store())
	}
	if o.purge {
		return what + " and all its data and certificate authorities? This cannot be undone."
	}
	return what + "? Data and certificate authorities stay."
}

// mergedContexts describes the contexts of this installation in the user's kubeconfig: none if its PKI cannot be read.
func (o *downOptions) mergedContexts(ctx context.Context, s *session) kubeconfig.RemoveOptions {
	if !o.purge {
		return kubeconfig.RemoveOptions{}
	}
	state, err := s.store().Load(ctx)
	if err != nil {
		o.env.note("the contexts in your kubeconfig stay, because kcpctl cannot tell which belong to this installation: " +
			err.Error())
		return kubeconfig.RemoveOptions{}
	}
	return kubeconfig.RemoveOptions{Owner: s.owner(state), ServerCA: state.CAs[topology.ServerCA].Trusted()}
}

// removeContexts removes the contexts that `kubeconfig --merge` added: their server no longer exists.
func (o *downOptions) removeContexts(ctx context.Context, contexts kubeconfig.RemoveOptions) error {
	path := userKubeconfig(o.env)
	if path == "" {
		return nil
	}
	removed, err := kubeconfig.Remove(ctx, path, contexts)
	if len(removed) > 0 {
		o.env.note(fmt.Sprintf("removed from %s: contexts %s", path, strings.Join(removed, ", ")))
	}
	return err
}
