package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/ui"
	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/schedule"
)

type workloadsExplainOptions struct {
	env       *Env
	setup     setupFlags
	kind      string
	name      string
	workspace string
	namespace string
	output    string
}

func newWorkloadsExplainCmd(env *Env) *cobra.Command {
	o := &workloadsExplainOptions{env: env}
	c := &cobra.Command{
		Use:   "explain KIND/NAME -w WORKSPACE",
		Short: "Show why each cluster was chosen for a workload, or was not",
		Long: `Explain shows the last decision of the controller about an object in a workspace: for each cluster, whether it
was chosen and why. GOAL is how many replicas the cluster gets in the end, REPLICAS how many it has now, and
READY how many of these are ready. SYNCED is whether the cluster has accepted the object.`,
		Example: `  kcpctl workloads explain deployment/web -w root:team
  kcpctl workloads explain ingress/shop -w root:team --in shop -o json`,
		Args: oneArg("object as KIND/NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args[0]); err != nil {
				return err
			}
			return o.run(c.Context())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	o.setup.add(f)
	f.StringVarP(&o.workspace, "workspace", "w", "", "path of the workspace, such as root:team")
	f.StringVar(&o.namespace, "in", metav1.NamespaceDefault, "namespace of the object in the workspace")
	addOutput(c, &o.output, "", machineFormats...)
	return c
}

func (o *workloadsExplainOptions) complete(arg string) error {
	var ok bool
	o.kind, o.name, ok = strings.Cut(arg, "/")
	switch {
	case !ok || o.kind == "" || o.name == "" || strings.Contains(o.name, "/"):
		return clierr.New(clierr.BadInput, "use KIND/NAME, such as deployment/web", "%q is not an object", arg)
	case o.workspace == "":
		return clierr.New(clierr.BadInput, "add -w WORKSPACE, such as -w root:team", "--workspace is required")
	}
	return nil
}

// explanation is the result in machineFormats.
type explanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name is the setup. Resource, Object, Namespace and Workspace name what is explained.
	Name      string `json:"name"`
	Resource  string `json:"resource"`
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	Workspace string `json:"workspace"`
	// Scheduled is the condition of the object. Its status is Unknown if the object has none.
	Scheduled metav1.Condition `json:"scheduled"`
	Clusters  []verdict        `json:"clusters"`
}

// verdict is the decision about a cluster, and what became of it.
type verdict struct {
	schedule.Verdict
	// Share is nil if the cluster has no share.
	Share *api.ClusterPlacement `json:"share,omitempty"`
	// Synced is the condition of the leaf. It is nil if there is no leaf, or if it has no conditions.
	Synced *metav1.Condition `json:"synced,omitempty"`
}

func (o *workloadsExplainOptions) run(ctx context.Context) error {
	s, c, err := openCompute(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	e, err := o.explain(ctx, c)
	if err != nil {
		return err
	}
	e.APIVersion, e.Kind, e.Name = v1alpha1.APIVersion, "WorkloadExplanation", s.topology.Name
	return o.print(e)
}

// explain reads an object and its leaves.
func (o *workloadsExplainOptions) explain(ctx context.Context, c *compute) (*explanation, error) {
	at, resource, err := o.find(ctx, c)
	if err != nil {
		return nil, err
	}
	root, err := c.Object(ctx, at)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s %s in %s: %w", resource, at.Name, at.Workspace, err)
	case root == nil:
		return nil, clierr.New(clierr.Failed, "specify its namespace with --in", "%s %q does not exist in namespace %s of %s",
			resource, at.Name, at.Namespace, at.Workspace)
	}
	if err := o.check(root); err != nil {
		return nil, err
	}
	e := &explanation{Resource: resource, Object: o.name, Namespace: at.Namespace, Workspace: at.Workspace, Scheduled: scheduledOf(root)}
	e.Clusters, err = verdictsOf(ctx, c, at, root)
	return e, err
}

// verdictsOf returns the decisions about a root, which are in its annotations, with the state of its leaves.
func verdictsOf(ctx context.Context, c *compute, at kcp.Place, root *unstructured.Unstructured) ([]verdict, error) {
	var decided []schedule.Verdict
	placement := api.Placement{}
	for key, to := range map[string]any{api.AnnotationExplain: &decided, api.AnnotationPlacement: &placement} {
		text := root.GetAnnotations()[key]
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), to); err != nil {
			return nil, fmt.Errorf("annotation %s of %s %s: %w", key, at.Kind, at.Name, err)
		}
	}
	var out []verdict
	for _, v := range decided {
		next := verdict{Verdict: v}
		if share, ok := placement[v.Cluster]; ok {
			next.Share = &share
			var err error
			if next.Synced, err = synced(ctx, c, at, v.Cluster); err != nil {
				return nil, err
			}
		}
		out = append(out, next)
	}
	return out, nil
}

// check fails if the controller has decided nothing about an object.
func (o *workloadsExplainOptions) check(root *unstructured.Unstructured) error {
	cluster, of := root.GetLabels()[api.LabelCluster], root.GetAnnotations()[api.AnnotationName]
	_, decided := root.GetAnnotations()[api.AnnotationExplain]
	switch {
	case cluster != "" && of != "":
		return clierr.New(clierr.BadInput, "explain "+o.kind+"/"+of, "%s is the part of %s that runs on cluster %s", root.GetName(), of, cluster)
	case cluster != "":
		return clierr.New(clierr.BadInput, "remove the object and create it without the label, so that it is scheduled",
			"%s is not scheduled: it is on cluster %s, because it was created with the label %s", root.GetName(), cluster, api.LabelCluster)
	case decided:
		return nil
	case slices.ContainsFunc(api.Dependencies(), func(r schema.GroupVersionResource) bool {
		return r.Group == root.GroupVersionKind().Group && strings.EqualFold(r.Resource, root.GetKind()+"s")
	}):
		return clierr.New(clierr.NotReady, "a workload has to use it, or it needs the annotation "+api.AnnotationSpread,
			"%s is on no cluster: no workload needs it", root.GetName())
	}
	return clierr.New(clierr.NotReady, "see "+o.setup.command("status")+" and "+o.setup.command("logs workloads/controller"),
		"the controller has not scheduled %s yet", root.GetName())
}

// find returns where the object is, and the name of its resource. A kind is one of the published APIs, or one that kcp serves and that
// workloads use: its plural, its singular, its kind or a short name, with or without a group, as for kubectl.
func (o *workloadsExplainOptions) find(ctx context.Context, c *compute) (kcp.Place, string, error) {
	clusters, err := c.clusters(ctx)
	if err != nil {
		return kcp.Place{}, "", err
	}
	known, versions := explainable(clusters)
	kind, group, inGroup := strings.Cut(o.kind, ".")
	var names []string
	for _, gv := range versions {
		all, err := c.Resources(ctx, o.workspace, gv)
		if errors.Is(err, kcp.ErrNotServed) {
			continue
		}
		if err != nil {
			return kcp.Place{}, "", clierr.New(clierr.Failed, "specify the path of a workspace, such as root:team", "read the APIs of workspace %s: %w", o.workspace, err)
		}
		for _, r := range all {
			if !known[gv.WithResource(r.Name)] {
				continue
			}
			if called(r, kind) && (!inGroup || group == gv.Group) {
				at := kcp.Place{Workspace: o.workspace, GroupVersionKind: gv.WithKind(r.Kind), Name: o.name}
				if r.Namespaced {
					at.Namespace = o.namespace
				}
				return at, gv.WithResource(r.Name).GroupResource().String(), nil
			}
			names = append(names, strings.ToLower(r.Kind))
		}
	}
	return kcp.Place{}, "", o.unknown(names)
}

// explainable are the resources of the objects that can be explained: the published APIs, and what workloads use of kcp. The versions have
// each group once for each version.
func explainable(clusters []*api.Cluster) (known map[schema.GroupVersionResource]bool, versions []schema.GroupVersion) {
	known = map[schema.GroupVersionResource]bool{}
	add := func(r schema.GroupVersionResource) {
		known[r] = true
		if !slices.Contains(versions, r.GroupVersion()) {
			versions = append(versions, r.GroupVersion())
		}
	}
	for _, r := range api.Dependencies() {
		add(r)
	}
	for _, cl := range clusters {
		for _, a := range cl.Status.APIs {
			if a.State.Serves() {
				add(schema.GroupVersionResource{Group: a.Group, Version: a.Version, Resource: a.Resource})
			}
		}
	}
	return known, versions
}

// unknown is the error for a kind that no workload has. Without the published APIs, a workspace has another type.
func (o *workloadsExplainOptions) unknown(names []string) error {
	if len(names) <= len(api.Dependencies()) {
		return clierr.New(clierr.BadInput, "workspaces of the type in spec.workloads.workspaceType can use the APIs: see kcpctl workloads apis",
			"workspace %s does not use the APIs of the clusters, so it has no %s", o.workspace, o.kind)
	}
	return unknownName("kind", o.kind, names)
}

// called reports whether a resource has a name, as in kubectl get.
func called(r metav1.APIResource, name string) bool {
	return slices.ContainsFunc(append([]string{r.Name, r.SingularName, r.Kind}, r.ShortNames...),
		func(n string) bool { return n != "" && strings.EqualFold(n, name) })
}

// scheduledOf returns the condition Scheduled of a root, or what stands for it.
func scheduledOf(root *unstructured.Unstructured) metav1.Condition {
	if text, ok := root.GetAnnotations()[api.AnnotationScheduleError]; ok {
		reason, message, _ := strings.Cut(text, ": ")
		return metav1.Condition{Type: api.ConditionScheduled, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	if c := api.ConditionIn(root, api.ConditionScheduled); c != nil {
		return *c
	}
	return metav1.Condition{Type: api.ConditionScheduled, Status: metav1.ConditionUnknown}
}

// synced returns the condition Synced of the leaf on a cluster, or what stands for it. It is nil if there is none.
func synced(ctx context.Context, c *compute, root kcp.Place, cluster string) (*metav1.Condition, error) {
	root.Name = api.LeafName(root.Name, cluster)
	leaf, err := c.Object(ctx, root)
	if err != nil {
		return nil, fmt.Errorf("read %s %s in %s: %w", root.Kind, root.Name, root.Workspace, err)
	}
	if leaf == nil {
		return nil, nil
	}
	if text, ok := leaf.GetAnnotations()[api.AnnotationSyncError]; ok {
		reason, message, _ := strings.Cut(text, ": ")
		return &metav1.Condition{Type: api.ConditionSynced, Status: metav1.ConditionFalse, Reason: reason, Message: message}, nil
	}
	return api.ConditionIn(leaf, api.ConditionSynced), nil
}

func (o *workloadsExplainOptions) print(e *explanation) error {
	out := o.env.Streams.Out
	if o.output != "" {
		return encode(out, o.output, e)
	}
	fmt.Fprintf(out, "%s %s, namespace %s of %s\n", e.Resource, e.Object, cmp.Or(e.Namespace, noValue), e.Workspace)
	if e.Scheduled.Status != metav1.ConditionUnknown {
		fmt.Fprintf(out, "Scheduled: %s\n", describeCondition(e.Scheduled))
	}
	fmt.Fprintln(out)
	var rows [][]string
	for _, v := range e.Clusters {
		rows = append(rows, v.row())
	}
	ui.Table(out, []string{"CLUSTER", "CHOSEN", "GOAL", "REPLICAS", "READY", "SYNCED", "REASON"}, rows...)
	return nil
}

// describeCondition returns Status, with the reason and the message if it is not True.
func describeCondition(c metav1.Condition) string {
	if c.Status == metav1.ConditionTrue {
		return string(c.Status)
	}
	return strings.TrimSuffix(fmt.Sprintf("%s, %s: %s", c.Status, c.Reason, firstLine(c.Message)), ": ")
}

func (v verdict) row() []string {
	goal, replicas, ready, state := noValue, noValue, noValue, noValue
	if v.Share != nil && v.Share.Replicas != nil {
		goal, replicas, ready = fmt.Sprint(v.Goal), fmt.Sprint(*v.Share.Replicas), "0"
		if v.Share.Ready != nil {
			ready = fmt.Sprint(*v.Share.Ready)
		}
	}
	if v.Synced != nil {
		state = describeCondition(*v.Synced)
	}
	return []string{v.Cluster, yesNo(v.Chosen), goal, replicas, ready, state, firstLine(v.Reason)}
}
