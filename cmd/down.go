package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/desired/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/compute"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/agents"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

type downOptions struct {
	env   *Env
	setup setupFlags
	removalFlags
	purge  bool
	orphan []string
	output string
}

func newDownCmd(env *Env) *cobra.Command {
	o := &downOptions{env: env}
	c := &cobra.Command{
		Use:   "down",
		Short: "Remove what up applied",
		Long: `Remove what up applied, each component before its dependencies. Data, certificate authorities and
namespaces stay, so that a later up continues with them; --purge removes them, too.

What workspaces run in the physical clusters of spec.workloads runs on: before it asks, down lists it, and prints
the commands that remove it.`,
		Example: `  kcpctl down
  kcpctl down --purge`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	o.setup.add(c.Flags())
	o.setup.addAllowOtherCluster(c)
	o.addRemoval(c, "the objects of the setup file")
	c.Flags().StringSliceVar(&o.setup.forgetClusters, run.FlagForgetCluster, nil,
		"purge although objects may remain on this `CLUSTER`, which is lost for good and no longer in the setup file "+
			"(repeatable)")
	c.Flags().BoolVar(&o.purge, "purge", false,
		"also remove data, certificate authorities, history, and the namespaces that up created")
	c.Flags().StringSliceVar(&o.orphan, agents.FlagOrphan, nil,
		"with --purge: remove this `AGENT` even if workspaces still have objects of its APIs; keep the copies on its "+
			"cluster (repeatable)")
	listUnder(c.Flags(), GroupRisk, run.FlagForgetCluster, agents.FlagOrphan)
	completeFlag(c, agents.FlagOrphan, o.setup.names(env, agentIDs))
	addEvents(c, &o.output)
	requireFlag(c.Flags(), "purge", agents.FlagOrphan)
	return c
}

func (o *downOptions) validate() error {
	o.setup.forgetClusters = placeNames(o.setup.forgetClusters)
	return o.validateDryRun()
}

func (o *downOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	if o.inClient() {
		return s.printObjects(ctx, func(render.Object) bool { return true })
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.close()
	known, err := writableRecord(ctx, s)
	if err != nil {
		return err
	}
	objects, err := s.runtime.Objects(ctx)
	if err != nil {
		return err
	}
	var found *compute.Tenants
	if clusters := s.topology.OfKind(topology.Physical); len(clusters) > 0 {
		found = s.tenants(ctx, clusters...)
		o.printTenants(found)
	}
	contexts := o.mergedContexts(ctx, s) // a purge removes the PKI, which identifies them
	scope, err := o.purgeScope(ctx, s, contexts)
	if err != nil {
		return err
	}
	if len(objects) == 0 && len(scope) == 0 {
		fmt.Fprintf(o.env.Streams.Err, "kcp %q is not deployed: nothing to remove from %s.\n",
			s.topology.Name, s.runtime.Where())
		return nil
	}
	down := &deploy.Down{
		Runtime: s.runtime, Topology: s.topology, Purge: o.purge, Orphan: idsOfNames(o.orphan), Now: o.env.Now,
		Observe: s.reporter.observe,
	}
	if found != nil {
		down.Tenants = found
	}
	if err := o.announce(ctx, s, known, len(objects), scope); err != nil {
		return err
	}
	yes, err := removal{
		removalFlags: &o.removalFlags, session: s, question: o.question(s, len(objects)),
		preview: func(context.Context) error { s.env.printPlan(deletionOf(objects)); return nil },
	}.confirmed(ctx)
	if err != nil || !yes {
		return err
	}
	if !o.yes {
		down.Shown = append([]plan.Item{}, objects...)
	}
	end := s.reporter.begin(ctx, fmt.Sprintf("remove kcp %q from %s", s.topology.Name, s.runtime.Where()))
	err = down.Run(ctx)
	end()
	if err != nil || !o.purge {
		return err
	}
	return o.removeContexts(ctx, contexts)
}

// purgeScope returns what a purge deletes besides objects: a line for each place. It is empty without --purge, and on a
// machine that has no files of the setup, unless contexts are left in the user's kubeconfig.
func (o *downOptions) purgeScope(
	ctx context.Context, s *session, contexts kubeconfig.RemoveOptions,
) ([]string, error) {
	if !o.purge {
		return nil, nil
	}
	scope, err := s.runtime.PurgeScope(ctx)
	if err != nil || len(scope) > 0 {
		return scope, err
	}
	path := userKubeconfig(o.env)
	merged, err := kubeconfig.Owned(path, contexts)
	if len(merged) > 0 {
		scope = append(scope, path+": "+strings.Join(merged, ", "))
	}
	return scope, err
}

// printTenants lists what workspaces run in physical clusters, if there is something, and how to remove it.
func (o *downOptions) printTenants(t *compute.Tenants) {
	lines := t.Lines()
	if len(lines) == 0 {
		return
	}
	w := o.env.Streams.Err
	fmt.Fprintf(w, "Workloads of workspaces in physical clusters:\n  %s\n", strings.Join(lines, "\n  "))
	fmt.Fprintf(w, "They run on. To remove them with their volumes, first end the syncers, then run:\n  %s\n",
		strings.Join(t.Removals(), "\n  "))
}

// writableRecord returns the record of the installation. It fails if this kcpctl may not write it, before a question is
// asked.
func writableRecord(ctx context.Context, s *session) (*record.Record, error) {
	known, err := s.runtime.Record(ctx)
	if err != nil {
		return nil, err
	}
	return known, known.Writable()
}

// announce refuses to remove an installation of which it is not known that it is the one of the setup file. It names
// what a purge deletes, and where.
func (o *downOptions) announce(
	ctx context.Context, s *session, known *record.Record, objects int, scope []string,
) error {
	if s.topology.Installation() != "" && known.Empty() {
		state, err := s.store().Load(ctx)
		if err == nil {
			err = deploy.MayRemove(s.topology, known, state, s.runtime.Where())
		}
		if err != nil {
			return err
		}
	}
	if !o.purge {
		return nil
	}
	w := o.env.Streams.Err
	fmt.Fprintf(w, "down --purge deletes %s of kcp %q, installation %s, and:\n",
		gather.Count(objects, "object", "objects"), s.topology.Name, cmp.Or(known.Installation, "unknown"))
	for _, line := range scope {
		fmt.Fprintf(w, "  %s\n", line)
	}
	return nil
}

func (o *downOptions) question(s *session, objects int) string {
	what := fmt.Sprintf("Remove %s of kcp %q from %s", gather.Count(objects, "object", "objects"), s.topology.Name,
		s.runtime.Where())
	if o.purge && s.runtime.KeepsPKI() {
		return what + fmt.Sprintf(" and all its data? This cannot be undone. Certificate authorities stay in %s.",
			s.store())
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
