package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/run"
)

type downOptions struct {
	setupOptions
	yes    bool
	purge  bool
	output string
}

func newDownCmd(g *globalOptions) *cobra.Command {
	o := &downOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "down",
		Short: "Remove what up applied",
		Long: `Down removes what up applied, dependants first. Data, certificate authorities and namespaces stay, so that a later up
continues with them; --purge removes them too.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.addFlags(c.Flags())
	o.addOtherClusterFlag(c.Flags())
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&o.purge, "purge", false, "also remove data, certificate authorities, history, and namespaces that up made")
	addEvents(c, &o.output)
	return c
}

func (o *downOptions) run(ctx context.Context) error {
	s, rt, err := o.attach()
	if err != nil {
		return err
	}
	defer rt.Close()
	objects, err := rt.Objects(ctx)
	if err != nil {
		return err
	}
	if len(objects) == 0 && !o.purge {
		fmt.Fprintf(o.Streams.Err, "kcp %q is not there: nothing to remove in %s.\n", s.Topology.Name, rt.Where())
		return nil
	}
	down := &run.Down{Runtime: rt, Purge: o.purge, Now: o.Now}
	if !o.yes {
		yes, err := o.Streams.Confirm(ctx, o.question(s, rt, len(objects)))
		if err != nil || !yes {
			return err
		}
		down.Shown = append([]plan.Item{}, objects...)
	}
	contexts := o.contexts(ctx, s, rt) // while it is known whose they are
	end := s.begin(ctx, fmt.Sprintf("remove kcp %q from %s", s.Topology.Name, rt.Where()), o.output)
	down.Observe = s.observe
	err = down.Run(ctx)
	end()
	if err != nil || !o.purge {
		return err
	}
	return o.forget(ctx, contexts)
}

// contexts says which entries of the user's kubeconfig are this installation's: none, where its PKI cannot be read.
func (o *downOptions) contexts(ctx context.Context, s *session, rt run.Runtime) kubeconfig.RemoveOptions {
	if !o.purge {
		return kubeconfig.RemoveOptions{}
	}
	state, err := rt.Store().Load(ctx)
	if err != nil {
		o.note("contexts in your kubeconfig stay, because it is not known which are of this installation: " + err.Error())
		return kubeconfig.RemoveOptions{}
	}
	return kubeconfig.RemoveOptions{Owner: s.owner(state), ServerCA: state.CAs[pki.ServerCA].Trusted()}
}

// forget removes the contexts that `kubeconfig --merge` made: they lead nowhere now.
func (o *downOptions) forget(ctx context.Context, contexts kubeconfig.RemoveOptions) error {
	path := o.userKubeconfig()
	if path == "" {
		return nil
	}
	gone, err := kubeconfig.Remove(ctx, path, contexts)
	if len(gone) > 0 {
		o.note(fmt.Sprintf("removed from %s: contexts %s", path, strings.Join(gone, ", ")))
	}
	return err
}

func (o *downOptions) question(s *session, rt run.Runtime, objects int) string {
	what := fmt.Sprintf("Remove %d objects of kcp %q from %s", objects, s.Topology.Name, rt.Where())
	if o.purge {
		return what + ", and all its data and certificate authorities? There is no way back."
	}
	return what + "? Data and certificate authorities stay."
}
