package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

type restartOptions struct {
	applyFlags
	env        *Env
	setup      setupFlags
	components componentArgs
}

func newRestartCmd(env *Env) *cobra.Command {
	o := &restartOptions{env: env}
	c := &cobra.Command{
		Use:   "restart COMPONENT...",
		Short: "Restart the pods or processes of components",
		Long: `Restart replaces the pods of components, or their processes on this machine, in the order of up: one
component after another, each when the previous one is ready and serves. Pods are replaced as in kubectl rollout
restart: with two replicas or more, clients do not notice. On this machine each component is one process, which
does not serve while it restarts.

It changes nothing else. If the setup file has changes of these components that are not applied yet, it
refuses to apply them too.`,
		Example: `  kcpctl restart shard/alpha
  kcpctl restart front-proxy/main cache-server --timeout 5m
  kcpctl restart --all --dry-run=server`,
		Args:              noFiles,
		RunE:              withArgs(&o.components.names, o.run),
		ValidArgsFunction: completeArgs(0, o.setup.names(env, componentIDs)),
	}
	f := c.Flags()
	o.setup.add(f)
	o.components.add(f, "restart all components")
	o.add(c, "everything is ready", "the objects whose pods would restart")
	o.wait.addParallel(f)
	return c
}

func (o *restartOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	selected, err := o.components.selected(s)
	if err != nil {
		return err
	}
	if o.dryRun == dryRunClient {
		return s.printObjects(ctx, func(o render.Object) bool {
			return plan.HasPods(o.GetKind()) && slices.Contains(selected, o.Component)
		})
	}
	defer s.close()
	if err := s.connect(ctx); err != nil {
		return err
	}
	if _, err := s.loadPKI(ctx); err != nil {
		return err
	}
	return o.restart(ctx, s, selected)
}

func (o *restartOptions) restart(ctx context.Context, s *session, selected []topology.ID) error {
	const hint = "restart %s too, or find the reason with kcpctl status"
	if err := requireDependencies(ctx, s, selected, hint); err != nil {
		return err
	}
	unedited, err := setup.Marshal(s.file.Setup)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("restart %s of kcp %q  (%s)",
		gather.Count(len(selected), "component", "components"), s.topology.Name, s.runtime.Where())
	res, err := upRun{
		header: title, wait: o.wait, keepHistory: true,
		options: deploy.UpOptions{
			PlanOptions: run.PlanOptions{Force: o.forceConflicts},
			Only:        selected, Restart: selected, Canaries: shardsOf(selected), Unedited: unedited,
			DryRun: o.dryRun == dryRunServer,
		},
	}.run(ctx, s)
	switch {
	case err != nil:
		return o.setup.explainUnapplied(err)
	case o.dryRun == dryRunServer:
		o.env.printPlan(res.Plan)
		return res.Refused
	case o.wait.output == outputJSON:
		return nil
	}
	fmt.Fprintf(o.env.Streams.Err, "\n%s of kcp %q restarted.\n",
		gather.Count(len(selected), "component", "components"), s.topology.Name)
	return nil
}

// shardsOf are the shards that prove a restart: those that restart themselves, or their etcds. With other components it
// is none, which means all shards. So another shard that is broken does not fail the restart of one.
func shardsOf(selected []topology.ID) []topology.ID {
	var out []topology.ID
	for _, id := range selected {
		if id.Kind() == topology.Etcd {
			id = id.EtcdOwner()
		}
		if id.Kind() != topology.Shard {
			return nil
		}
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}
