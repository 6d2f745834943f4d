package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

type workloadsExplainOptions struct {
	env    *Env
	setup  setupFlags
	object rootArg
	output string
}

func newWorkloadsExplainCmd(env *Env) *cobra.Command {
	o := &workloadsExplainOptions{env: env}
	c := &cobra.Command{
		Use:   "explain KIND/NAME -w WORKSPACE",
		Short: "Show why each cluster was chosen for a workload, or was not",
		Long: `Show the last decision of the controller about an object in a workspace: for each cluster, whether it
was chosen and why. GOAL is how many replicas the cluster gets in the end, REPLICAS how many it has now, and
READY how many of these are ready. SYNCED is whether the cluster has accepted the object. The REASON of a
cluster without a share is the present state of its Cluster object.`,
		Example: `  kcpctl workloads explain deployment/web -w root:team
  kcpctl workloads explain ingress/shop -w root:team --in shop -o json`,
		Args: oneArg("object as KIND/NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.object.complete(args[0]); err != nil {
				return err
			}
			return openedCompute(env, &o.setup, o.run)(c.Context())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	o.setup.add(f)
	o.object.add(f)
	addOutput(c, &o.output, "", machineFormats...)
	return c
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
	// Scheduled is the condition of the object. Its status is Unknown if the object does not have it.
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

func (o *workloadsExplainOptions) run(ctx context.Context, c *compute) error {
	e, err := o.explain(ctx, c)
	if err != nil {
		return err
	}
	e.APIVersion = v1alpha1.APIVersion
	e.Kind = "WorkloadExplanation"
	e.Name = c.session.topology.Name
	return o.print(e)
}

// explain reads an object and its leaves.
func (o *workloadsExplainOptions) explain(ctx context.Context, c *compute) (*explanation, error) {
	at, resource, root, err := o.object.read(ctx, c, &o.setup)
	if err != nil {
		return nil, err
	}
	e := &explanation{Resource: resource, Object: at.Name, Namespace: at.Namespace, Workspace: at.Workspace,
		Scheduled: scheduledOf(root)}
	if e.Clusters, err = verdictsOf(ctx, c, at, root); err != nil {
		return nil, err
	}
	e.Clusters, err = withOthers(ctx, c, e.Clusters, at.Workspace, schema.ParseGroupResource(resource), root)
	return e, err
}

// verdictsOf returns the decisions about a root, which are in its annotations, with the state of its leaves.
func verdictsOf(ctx context.Context, c *compute, at plan.Ref, root *unstructured.Unstructured) ([]verdict, error) {
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

// withOthers adds the clusters that have no share. The annotation does not have them, because their states change more
// often than the decision. A user who may not read them does not see them.
func withOthers(
	ctx context.Context, c *compute, decided []verdict, workspace string, gr schema.GroupResource,
	root *unstructured.Unstructured,
) ([]verdict, error) {
	hints, _ := schedule.ParseHints(root.GetAnnotations(), nil, "") // the condition Scheduled has mistakes
	all, err := c.clusters(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	for _, cl := range all {
		if !slices.ContainsFunc(decided, func(v verdict) bool { return v.Cluster == cl.Name }) {
			decided = append(decided, verdict{Verdict: schedule.Verdict{Cluster: cl.Name,
				Reason: cmp.Or(excludedBy(hints, cl), noShare(cl, workspace, gr))}})
		}
	}
	slices.SortFunc(decided, func(a, b verdict) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return decided, nil
}

// excludedBy returns why the annotations of an object exclude a cluster. It is empty if they do not.
func excludedBy(h schedule.Hints, cl *api.Cluster) string {
	switch {
	case h.ClusterSelector != nil && !h.ClusterSelector.Matches(labels.Set(cl.Labels)):
		return fmt.Sprintf("its labels do not match %s", h.ClusterSelector)
	case h.Weights != nil && h.Weights[cl.Name] == 0:
		return "it has no weight in " + api.AnnotationWeights
	}
	return ""
}

// noShare returns why a cluster has no share of an object, as far as the Cluster says it.
func noShare(cl *api.Cluster, workspace string, gr schema.GroupResource) string {
	ready, status := conditionOf(cl, api.ConditionReady), cl.API(gr)
	builtIn := slices.ContainsFunc(api.Dependencies(),
		func(r schema.GroupVersionResource) bool { return r.GroupResource() == gr })
	switch {
	case cl.DeletionTimestamp != nil:
		return "it is being removed"
	case cl.Draining():
		return "it is drained"
	case !cl.Spec.WorkspaceSelector.Selects(workspace):
		return "its workspaceSelector does not select " + workspace
	case ready.Status != metav1.ConditionTrue && ready.Reason == unknownValue:
		return "it is not ready"
	case ready.Status != metav1.ConditionTrue:
		return "it is not ready (" + ready.Reason + ")"
	case !builtIn && !status.State.Serves():
		return strings.TrimSuffix(string(status.State)+": "+status.Message, ": ")
	case cl.Spec.Unschedulable:
		return "it is cordoned"
	}
	return "has no share"
}

// scheduledOf returns the condition Scheduled of a root, or what stands for it.
func scheduledOf(root *unstructured.Unstructured) metav1.Condition {
	if text, ok := root.GetAnnotations()[api.AnnotationScheduleError]; ok {
		reason, message, _ := strings.Cut(text, ": ")
		return metav1.Condition{Type: api.ConditionScheduled, Status: metav1.ConditionFalse,
			Reason: reason, Message: message}
	}
	if c := api.ConditionIn(root, api.ConditionScheduled); c != nil {
		return *c
	}
	return metav1.Condition{Type: api.ConditionScheduled, Status: metav1.ConditionUnknown}
}

// synced returns the condition Synced of the leaf on a cluster, or what stands for it. It is nil if there is none.
func synced(ctx context.Context, c *compute, root plan.Ref, cluster string) (*metav1.Condition, error) {
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
		return &metav1.Condition{Type: api.ConditionSynced, Status: metav1.ConditionFalse, Reason: reason,
			Message: message}, nil
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
	ui.Table(out, []string{"CLUSTER", "CHOSEN", "GOAL", "REPLICAS", "READY", "SYNCED", "REASON"},
		mapped(e.Clusters, verdict.row)...)
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
	goal := noValue
	replicas := noValue
	ready := noValue
	state := noValue
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
