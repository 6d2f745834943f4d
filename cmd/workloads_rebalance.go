package cmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/engine/compute"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
)

type workloadsRebalanceOptions struct {
	env    *Env
	setup  setupFlags
	object rootArg
	// all means that no object is named.
	all     bool
	dryRun  bool
	timeout time.Duration
	output  string
}

func newWorkloadsRebalanceCmd(env *Env) *cobra.Command {
	o := &workloadsRebalanceOptions{env: env}
	c := &cobra.Command{
		Use:   "rebalance [KIND/NAME -w WORKSPACE]",
		Short: "Divide running replicas by the free capacity of the clusters once again",
		Long: `Request from the controller to divide the replicas of all workloads by the free capacity of the
clusters, such as after a cluster was added. With KIND/NAME, it requests this for one object in a workspace.
Otherwise replicas that run stay where they are.

Replicas move a few at a time: a cluster gets new ones first, and another one loses as many when these are
available. Workloads that are on one cluster, and those with data, do not move.

With --dry-run, the command requests nothing, and lists what would move: FROM has the replicas of each cluster
now, and TO those in the end. Free capacity changes all the time, so the result can differ slightly.`,
		Example: `  kcpctl workloads rebalance --dry-run
  kcpctl workloads rebalance
  kcpctl workloads rebalance deployment/web -w root:team --in shop`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return openedCompute(env, &o.setup, o.run)(c.Context())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	o.setup.add(f)
	o.object.add(f)
	f.BoolVar(&o.dryRun, "dry-run", false, "only list what would move")
	addTimeout(f, &o.timeout, "read the objects of all workspaces with --dry-run")
	addOutput(c, &o.output, "", machineFormats...)
	requireFlag(f, "dry-run", "output", "timeout")
	return c
}

func (o *workloadsRebalanceOptions) complete(args []string) error {
	o.all = len(args) == 0
	switch {
	case len(args) > 1:
		return clierr.New(clierr.BadInput, "specify one object as KIND/NAME, or none for all workloads",
			"%d arguments", len(args))
	case o.all && o.object.workspace != "":
		return clierr.New(clierr.BadInput, "add the object as KIND/NAME, such as deployment/web",
			"--workspace is only used with an object")
	case !o.all:
		if err := o.object.complete(args[0]); err != nil {
			return err
		}
	}
	return nil
}

func (o *workloadsRebalanceOptions) run(ctx context.Context, c *computeSession) error {
	if !o.dryRun {
		return o.request(ctx, c.Workspace)
	}
	return o.list(ctx, c.Workspace,
		func(ctx context.Context, state roots.State) ([]roots.Move, error) {
			return c.Preview(ctx, state, o.timeout)
		})
}

// root reads the object that is named. It is nil for all workloads.
func (o *workloadsRebalanceOptions) root(ctx context.Context, w *compute.Workspace) (*compute.Root, error) {
	if o.all {
		return nil, nil
	}
	return o.object.read(ctx, w)
}

func (o *workloadsRebalanceOptions) request(ctx context.Context, w *compute.Workspace) error {
	root, err := o.root(ctx, w)
	if err == nil {
		err = w.Rebalance(ctx, root)
	}
	if err != nil {
		return err
	}
	what := "all workloads"
	if root != nil {
		what = fmt.Sprintf("%s %s in %s", root.Resource, root.Name, root.Workspace)
	}
	fmt.Fprintf(o.env.Streams.Err,
		"requested to rebalance %s: replicas move a few at a time, see kcpctl workloads explain.\n", what)
	return nil
}

// list prints what would move, as preview computes it.
func (o *workloadsRebalanceOptions) list(ctx context.Context, w *compute.Workspace,
	preview func(context.Context, roots.State) ([]roots.Move, error)) error {
	root, err := o.root(ctx, w)
	if err != nil {
		return err
	}
	moves, err := w.Moves(ctx, root, preview)
	if err != nil {
		return err
	}
	if o.output != "" {
		return encode(o.env.Streams.Out, o.output, listOf("MoveList", w.Topology.Name, moves))
	}
	if len(moves) == 0 {
		fmt.Fprintln(o.env.Streams.Err,
			"nothing would move: the replicas are divided by the free capacity of the clusters.")
		return nil
	}
	var rows [][]string
	for _, m := range moves {
		rows = append(rows, []string{m.Workspace, m.Namespace, m.Resource + "/" + m.Object, replicasText(m.From),
			replicasText(m.To)})
	}
	ui.Table(o.env.Streams.Out, []string{"WORKSPACE", "NAMESPACE", "OBJECT", "FROM", "TO"}, rows...)
	return nil
}

// replicasText returns replicas by cluster, such as c1=2 c2=1.
func replicasText(all map[string]int64) string {
	out := mapped(slices.Sorted(maps.Keys(all)), func(name string) string {
		return fmt.Sprintf("%s=%d", name, all[name])
	})
	return cmp.Or(strings.Join(out, " "), noValue)
}
