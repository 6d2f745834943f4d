package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/workload/api"
)

type downOptions struct {
	env    *Env
	setup  setupFlags
	yes    bool
	purge  bool
	orphan []string
	output string
	// purgeWorkloads also removes what workspaces run in physical clusters, and setupID is the ID with which it is found if kcp is gone.
	purgeWorkloads bool
	setupID        string
}

func newDownCmd(env *Env) *cobra.Command {
	o := &downOptions{env: env}
	c := &cobra.Command{
		Use:   "down",
		Short: "Remove what up applied",
		Long: `Down removes what up applied, each component before its dependencies. Data, certificate authorities and
namespaces stay, so that a later up continues with them; --purge removes them, too.

What workspaces run in the physical clusters of spec.workloads stays, and runs on: down lists it before it asks.
With --purge-workloads, down deletes the namespaces of workspaces in these clusters, with their volumes. They are
found by the ID of the setup, which kcp and the record of the installation have. If both are gone, as after
down --purge, pass it with --setup-id.`,
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
	c.Flags().BoolVar(&o.purgeWorkloads, "purge-workloads", false,
		"also delete the namespaces of workspaces in physical clusters, with all that runs there and its volumes")
	c.Flags().StringVar(&o.setupID, "setup-id", "",
		"with --purge-workloads, if kcp does not answer: ID of the setup, the label "+api.LabelSetup+" of the namespaces")
	addEvents(c, &o.output)
	return c
}

func (o *downOptions) run(ctx context.Context) error {
	if o.setupID != "" && !o.purgeWorkloads {
		return clierr.New(clierr.BadInput, "add --purge-workloads", "--setup-id is only used with --purge-workloads")
	}
	s, err := openSetup(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	objects, err := s.runtime.Objects(ctx)
	if err != nil {
		return err
	}
	found, err := o.tenants(ctx, s)
	if err != nil {
		return err
	}
	if found != nil {
		found.print(o.env.Streams.Err, o.purgeWorkloads, o.setup.command("down --purge-workloads"))
	}
	if len(objects) == 0 && !o.purge && !o.purgeWorkloads {
		fmt.Fprintf(o.env.Streams.Err, "kcp %q is not deployed: nothing to remove from %s.\n",
			s.topology.Name, s.runtime.Where())
		return nil
	}
	down := &run.Down{
		Runtime: s.runtime, Topology: s.topology, Purge: o.purge, Orphan: idsOfNames(o.orphan), Now: o.env.Now, Observe: s.reporter.observe,
	}
	if found != nil {
		down.Tenants, down.PurgeTenants = found, o.purgeWorkloads
	}
	if !o.yes {
		yes, err := o.env.Streams.Confirm(ctx, o.question(s, len(objects))+o.losses(found))
		if err != nil || !yes {
			return err
		}
		if found != nil {
			found.agree()
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

// tenants reads what workspaces run in physical clusters. It is nil for a setup without such clusters. To delete something, the ID of
// the setup must be certain: kcp says it, or if it is gone, the user.
func (o *downOptions) tenants(ctx context.Context, s *session) (*tenants, error) {
	clusters := s.topology.OfKind(topology.Physical)
	if len(clusters) == 0 {
		if o.purgeWorkloads {
			return nil, clierr.New(clierr.BadInput, "remove --purge-workloads", "%s has no spec.workloads.clusters", s.file.Name)
		}
		return nil, nil
	}
	t := s.tenants(ctx, clusters...)
	return t, o.identify(t)
}

// identify decides which ID the setup has.
func (o *downOptions) identify(t *tenants) error {
	switch {
	case !o.purgeWorkloads, t.unknown == nil && (o.setupID == "" || o.setupID == t.id):
		return nil
	case t.unknown != nil && len(t.lines()) == 0:
		return nil // no setup has anything there
	case t.unknown == nil:
		return clierr.New(clierr.BadInput, "remove --setup-id",
			"the ID of kcp %q is %s, and not %s; nothing was removed", t.setup, t.id, o.setupID)
	case o.setupID == "":
		hint := "make kcp answer, or pass the ID of the setup with --setup-id"
		if lines := t.lines(); len(lines) > 0 {
			hint += ". The clusters have:\n  " + strings.Join(lines, "\n  ")
		}
		return clierr.New(clierr.Failed, hint,
			"which workloads in physical clusters are those of kcp %q is not known; nothing was removed: %w", t.setup, t.unknown)
	case !t.found(o.setupID):
		return clierr.New(clierr.BadInput, "correct --setup-id; or remove it with --purge-workloads, if the workloads are removed already",
			"no physical cluster has namespaces with the label %s=%s; nothing was removed", api.LabelSetup, o.setupID)
	}
	t.id = o.setupID
	return nil
}

// losses says what --purge-workloads deletes.
func (o *downOptions) losses(t *tenants) string {
	if !o.purgeWorkloads {
		return ""
	}
	namespaces, clusters := t.count()
	if namespaces == 0 {
		return " No namespaces of workspaces were found in physical clusters."
	}
	return fmt.Sprintf(" This deletes %s of workspaces in %s, with everything that runs there, and with its volumes: their data is lost.",
		plural(namespaces, "namespace", "namespaces"), "cluster "+strings.Join(clusters, ", "))
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
