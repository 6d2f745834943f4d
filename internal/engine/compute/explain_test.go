package compute

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

// The annotation has the clusters with a share. The reasons of the others are in their Cluster objects.
func TestWhyAClusterHasNoShare(t *testing.T) {
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	for _, tc := range []struct {
		want   string
		change func(cl *api.Cluster)
	}{
		{"has no share", func(*api.Cluster) {}},
		{"it is not ready (Unreachable)", func(cl *api.Cluster) {
			cl.Status.Conditions = []metav1.Condition{{Type: api.ConditionReady, Status: metav1.ConditionFalse, Reason: api.ReasonUnreachable}}
		}},
		{"it is not ready", func(cl *api.Cluster) { cl.Status.Conditions = nil }},
		{"it is cordoned", func(cl *api.Cluster) { cl.Spec.Unschedulable = true }},
		{"it is drained", func(cl *api.Cluster) {
			cl.Spec.Unschedulable, cl.Annotations = true, map[string]string{api.AnnotationDrain: ""}
		}},
		{"it is being removed", func(cl *api.Cluster) { cl.DeletionTimestamp = &metav1.Time{Time: time.Now()} }},
		{"its workspaceSelector does not select root:team", func(cl *api.Cluster) {
			cl.Spec.WorkspaceSelector = &v1alpha1.WorkspaceSelector{Paths: []string{"root:teams", "root:other"}}
		}},
		{"has no share", func(cl *api.Cluster) {
			cl.Spec.WorkspaceSelector = &v1alpha1.WorkspaceSelector{Paths: []string{"root"}}
		}},
		{"Incompatible: spec.paused: the field is missing", func(cl *api.Cluster) {
			cl.Status.APIs = []api.APIStatus{{Group: "apps", Resource: "deployments", State: api.APIIncompatible, Message: "spec.paused: the field is missing"}}
		}},
	} {
		cl := &api.Cluster{Status: api.ClusterStatus{
			Conditions: []metav1.Condition{{Type: api.ConditionReady, Status: metav1.ConditionTrue, Reason: api.ReasonReady}},
			APIs:       []api.APIStatus{{Group: "apps", Resource: "deployments", State: api.APIPublished}},
		}}
		tc.change(cl)
		require.Equal(t, tc.want, noShare(cl, "root:team", deployments))
	}
	require.Equal(t, "has no share", noShare(&api.Cluster{Status: api.ClusterStatus{
		Conditions: []metav1.Condition{{Type: api.ConditionReady, Status: metav1.ConditionTrue}},
	}}, "root:team", schema.GroupResource{Resource: "configmaps"}), "every cluster serves it")
}

// The annotations of an object exclude clusters.
func TestExcludedClusters(t *testing.T) {
	cl := &api.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: map[string]string{"region": "eu"}}}
	for annotation, want := range map[string]string{
		api.AnnotationClusterSelector + "=region in (us)": "its labels do not match region in (us)",
		api.AnnotationClusterSelector + "=region in (eu)": "",
		api.AnnotationWeights + "=c2=1":                   "it has no weight in workloads.kcp.dev/weights",
		api.AnnotationWeights + "=c1=1":                   "",
	} {
		key, value, _ := strings.Cut(annotation, "=")
		h, err := schedule.ParseHints(map[string]string{key: value}, nil, "")
		require.NoError(t, err)
		require.Equal(t, want, excludedBy(h, cl), annotation)
	}
}
