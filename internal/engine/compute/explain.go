package compute

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

// Explanation is the last decision of the controller about an object.
type Explanation struct {
	// Resource, Object, Namespace and Workspace name what is explained.
	Resource  string `json:"resource"`
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	Workspace string `json:"workspace"`
	// Scheduled is the condition of the object. Its status is Unknown if the object does not have it.
	Scheduled metav1.Condition `json:"scheduled"`
	Clusters  []Verdict        `json:"clusters"`
}

// Verdict is the decision about a cluster, and what became of it.
type Verdict struct {
	schedule.Verdict
	// Share is nil if the cluster has no share.
	Share *api.ClusterPlacement `json:"share,omitempty"`
	// Synced is the condition of the leaf. It is nil if there is no leaf, or if it has no conditions.
	Synced *metav1.Condition `json:"synced,omitempty"`
}

// Explain reads an object, its leaves and the clusters.
func (w *Workspace) Explain(ctx context.Context, n RootName) (*Explanation, error) {
	root, err := w.Root(ctx, n)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Resource: root.Resource.String(), Object: root.Name, Namespace: root.Namespace,
		Workspace: root.Workspace,
		Scheduled: metav1.Condition{Type: api.ConditionScheduled, Status: metav1.ConditionUnknown}}
	if c := conditionIn(root.Object, api.ConditionScheduled, api.AnnotationScheduleError); c != nil {
		e.Scheduled = *c
	}
	if e.Clusters, err = w.verdicts(ctx, root); err != nil {
		return nil, err
	}
	hints, _ := schedule.ParseHints(root.Object.GetAnnotations(), nil, "") // the condition Scheduled has mistakes
	for _, cl := range root.clusters {
		// The annotation does not have the clusters without a share: their states change more often than the decision.
		if !slices.ContainsFunc(e.Clusters, func(v Verdict) bool { return v.Cluster == cl.Name }) {
			e.Clusters = append(e.Clusters, Verdict{Verdict: schedule.Verdict{Cluster: cl.Name,
				Reason: cmp.Or(excludedBy(hints, cl), noShare(cl, root.Workspace, root.Resource))}})
		}
	}
	slices.SortFunc(e.Clusters, func(a, b Verdict) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return e, nil
}

// verdicts returns the decisions about a root, which are in its annotations, with the state of its leaves.
func (w *Workspace) verdicts(ctx context.Context, root *Root) ([]Verdict, error) {
	var decided []schedule.Verdict
	placement := api.Placement{}
	for key, to := range map[string]any{api.AnnotationExplain: &decided, api.AnnotationPlacement: &placement} {
		text := root.Object.GetAnnotations()[key]
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), to); err != nil {
			return nil, fmt.Errorf("annotation %s of %s %s: %w", key, root.Kind, root.Name, err)
		}
	}
	var out []Verdict
	for _, v := range decided {
		next := Verdict{Verdict: v}
		if share, ok := placement[v.Cluster]; ok {
			next.Share = &share
			at := root.Ref
			at.Name = api.LeafName(root.Name, v.Cluster)
			leaf, err := w.Object(ctx, at)
			if err != nil {
				return nil, fmt.Errorf("read %s %s in %s: %w", at.Kind, at.Name, at.Workspace, err)
			}
			if leaf != nil {
				next.Synced = conditionIn(leaf, api.ConditionSynced, api.AnnotationSyncError)
			}
		}
		out = append(out, next)
	}
	return out, nil
}

// conditionIn returns a condition of an object, or nil. Objects whose API has no conditions have an annotation instead,
// with a reason and a message, if the condition is False.
func conditionIn(o *unstructured.Unstructured, kind, annotation string) *metav1.Condition {
	if text, ok := o.GetAnnotations()[annotation]; ok {
		reason, message, _ := strings.Cut(text, ": ")
		return &metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	return api.ConditionIn(o, kind)
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
	ready, status := ConditionOf(cl, api.ConditionReady), cl.API(gr)
	switch {
	case cl.DeletionTimestamp != nil:
		return "it is being removed"
	case cl.Draining():
		return "it is drained"
	case !cl.Spec.WorkspaceSelector.Selects(workspace):
		return "its workspaceSelector does not select " + workspace
	case ready.Status != metav1.ConditionTrue && ready.Reason == "":
		return "it is not ready"
	case ready.Status != metav1.ConditionTrue:
		return "it is not ready (" + ready.Reason + ")"
	case !isDependency(gr) && !status.State.Serves():
		return strings.TrimSuffix(string(status.State)+": "+status.Message, ": ")
	case cl.Spec.Unschedulable:
		return "it is cordoned"
	}
	return "has no share"
}

// ConditionOf returns a condition of a Cluster. Its status is Unknown if the controller has not written it yet.
func ConditionOf(cl *api.Cluster, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(cl.Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown}
}
