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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
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
	return c
}

// complete reads the arguments.
func (o *workloadsRebalanceOptions) complete(args []string) error {
	o.all = len(args) == 0
	switch {
	case len(args) > 1:
		return clierr.New(clierr.BadInput, "specify one object as KIND/NAME, or none for all workloads",
			"%d arguments", len(args))
	case o.all && o.object.workspace != "":
		return clierr.New(clierr.BadInput, "add the object as KIND/NAME, such as deployment/web",
			"--workspace is only used with an object")
	case o.output != "" && !o.dryRun:
		return clierr.New(clierr.BadInput, "add --dry-run, or remove --output", "--output is only used with --dry-run")
	case !o.all:
		if err := o.object.complete(args[0]); err != nil {
			return err
		}
	}
	return checkTimeout(o.timeout)
}

type moveItem struct {
	Workspace string `json:"workspace"`
	Namespace string `json:"namespace"`
	Resource  string `json:"resource"`
	Object    string `json:"object"`
	// From has the replicas by cluster before the move, and To after it.
	From map[string]int64 `json:"from"`
	To   map[string]int64 `json:"to"`
}

func (o *workloadsRebalanceOptions) run(ctx context.Context, c *compute) error {
	s := c.session
	r := &rebalancing{compute: c, flags: s.flags, setup: s.topology.Name, apis: s.file.Setup.Spec.Workloads.APIs}
	r.preview = func(ctx context.Context, state roots.State) ([]roots.Move, error) {
		return c.previewMoves(ctx, state, o.timeout)
	}
	if o.dryRun {
		return o.list(ctx, r)
	}
	return o.request(ctx, r)
}

// rebalancing has the parts of a setup that the command needs.
type rebalancing struct {
	*compute
	flags *setupFlags
	// setup is its name.
	setup string
	// apis are the APIs of the setup file.
	apis []string
	// preview returns what would move.
	preview func(ctx context.Context, state roots.State) ([]roots.Move, error)
}

// request requests from the controller to rebalance.
func (o *workloadsRebalanceOptions) request(ctx context.Context, r *rebalancing) error {
	at, what := r.placeOf(kcpapi.APIExport, api.ExportWorkloads), "all workloads"
	if o.all {
		if _, err := r.published(ctx, r.flags); err != nil {
			return err
		}
	} else {
		root, resource, _, err := o.object.read(ctx, r.compute, &o.setup)
		if err != nil {
			return err
		}
		at, what = root, fmt.Sprintf("%s %s in %s", resource, root.Name, root.Workspace)
	}
	id := o.env.Now().UTC().Format(time.RFC3339Nano) // a value that no earlier request has
	if _, err := r.PatchObject(ctx, at, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{api.AnnotationRebalanceRequest: id}},
	}); err != nil {
		return fmt.Errorf("annotate %s %s in %s: %w", at.Kind, at.Name, at.Workspace, err)
	}
	fmt.Fprintf(o.env.Streams.Err,
		"requested to rebalance %s: replicas move a few at a time, see kcpctl workloads explain.\n", what)
	return nil
}

// list prints what would move.
func (o *workloadsRebalanceOptions) list(ctx context.Context, r *rebalancing) error {
	moves, err := o.moves(ctx, r)
	if err != nil {
		return err
	}
	if o.output != "" {
		return encode(o.env.Streams.Out, o.output, listOf("MoveList", r.setup, moves))
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

// moves returns what would move, sorted by workspace.
func (o *workloadsRebalanceOptions) moves(ctx context.Context, r *rebalancing) ([]moveItem, error) {
	var only *unstructured.Unstructured
	resource := ""
	if !o.all {
		var err error
		if _, resource, only, err = o.object.read(ctx, r.compute, &o.setup); err != nil {
			return nil, err
		}
	}
	state, err := r.state(ctx)
	if err != nil {
		return nil, err
	}
	all, err := r.preview(ctx, state)
	if err != nil {
		return nil, clierr.New(clierr.Failed, "make all shards reachable, or use a longer --timeout", "%w", err)
	}
	all = slices.DeleteFunc(all, func(m roots.Move) bool {
		return only != nil && (m.Cluster != only.GetAnnotations()[kcpapi.AnnotationCluster] ||
			m.GroupResource().String() != resource ||
			m.Namespace != only.GetNamespace() || m.Name != only.GetName())
	})
	clusters := map[string]bool{}
	for _, m := range all {
		clusters[m.Cluster] = true
	}
	paths := r.paths(ctx, slices.Sorted(maps.Keys(clusters)))
	var out []moveItem
	for _, m := range all {
		out = append(out, moveItem{paths[m.Cluster], m.Namespace, m.GroupResource().String(), m.Name, m.From, m.To})
	}
	slices.SortStableFunc(out, func(a, b moveItem) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Namespace, b.Namespace))
	})
	return out, nil
}

// state returns what the controller bases decisions on.
func (r *rebalancing) state(ctx context.Context) (state roots.State, err error) {
	in, err := r.published(ctx, r.flags)
	if err != nil {
		return state, err
	}
	live, err := negotiate.Published(in.Export, in.Schemas)
	if err != nil {
		return state, err
	}
	state.Published = &roots.Published{}
	for _, gvr := range live {
		if slices.ContainsFunc(r.apis, func(a string) bool { return schema.ParseGroupResource(a) == gvr.GroupResource() }) {
			state.Published.Scheduled = append(state.Published.Scheduled, gvr)
		} else {
			state.Published.Removed = append(state.Published.Removed, gvr)
		}
	}
	state.Clusters, err = r.clusters(ctx)
	return state, err
}

// previewMoves computes what would move, from the objects of all workspaces.
func (c *compute) previewMoves(ctx context.Context, state roots.State,
	timeout time.Duration) ([]roots.Move, error) {
	proxy, ok := c.computeClient.(*kcp.Client)
	if !ok {
		return nil, fmt.Errorf("no client for a front-proxy: %T", c.computeClient)
	}
	endpoints, err := c.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	var urls []string
	route := &kcp.Router{Default: proxy, Prefixes: map[string]*kcp.Client{}}
	for _, e := range endpoints {
		urls = append(urls, e.URL.String())
		client, err := c.connectTo(e)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		route.Prefixes[e.URL.String()] = client
	}
	return roots.Preview(ctx,
		roots.Options{KCP: route.Config(), Workspace: c.workspace, Now: c.session.env.Now}, state, urls, timeout)
}

// replicasText returns replicas by cluster, such as c1=2 c2=1.
func replicasText(all map[string]int64) string {
	out := mapped(slices.Sorted(maps.Keys(all)), func(name string) string {
		return fmt.Sprintf("%s=%d", name, all[name])
	})
	return cmp.Or(strings.Join(out, " "), noValue)
}
