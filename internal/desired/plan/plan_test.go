package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
)

func item(id string, a plan.Action) plan.Item {
	return plan.Item{Ref: plan.Ref{Name: id + "-" + string(a)}, Component: "shard/alpha", Action: a}
}

func TestPlan(t *testing.T) {
	other := item("b", plan.Create)
	other.Component = "root-shard"
	p := &plan.Plan{Items: []plan.Item{
		item("a", plan.Create), item("a", plan.Change), item("a", plan.Unchanged), item("a", plan.Delete), other, item("b", plan.Unchanged),
	}}
	require.Equal(t, "2 create, 1 change, 1 delete, 2 unchanged", p.Summary())
	require.Equal(t, []plan.Item{p.Items[0], p.Items[1]}, p.Of("shard/alpha"))
	require.Equal(t, []plan.Item{other}, p.Of("root-shard"))
	require.Empty(t, p.Of("shard/beta"))
	require.Equal(t, []plan.Item{p.Items[3]}, p.Deletions())
}

func TestEmpty(t *testing.T) {
	for name, tc := range map[string]struct {
		plan plan.Plan
		want bool
	}{
		"nothing":   {plan.Plan{}, true},
		"unchanged": {plan.Plan{Items: []plan.Item{item("a", plan.Unchanged)}}, true},
		"create":    {plan.Plan{Items: []plan.Item{item("a", plan.Unchanged), item("a", plan.Create)}}, false},
		"delete":    {plan.Plan{Items: []plan.Item{item("a", plan.Delete)}}, false},
		"stale":     {plan.Plan{Items: []plan.Item{item("a", plan.Unchanged)}, Stale: true}, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, tc.plan.Empty()) })
	}
}

func TestRef(t *testing.T) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	o.SetName("demo-root")
	o.SetNamespace("kcp")
	ref := plan.RefOf("eu", o)
	require.Equal(t, plan.Ref{Cluster: "eu", GroupVersionKind: o.GroupVersionKind(), Namespace: "kcp", Name: "demo-root"}, ref)
	require.Equal(t, "Deployment/kcp/demo-root", ref.String())
	in := plan.RefIn("root:team-a", o)
	require.Equal(t, plan.Ref{Workspace: "root:team-a", GroupVersionKind: o.GroupVersionKind(), Namespace: "kcp", Name: "demo-root"}, in)
	require.Equal(t, "Deployment/kcp/demo-root in root:team-a", in.String())
	require.Equal(t, "Namespace/kcp", plan.Ref{GroupVersionKind: schema.GroupVersionKind{Kind: "Namespace"}, Name: "kcp"}.String())
}

// On this machine there are processes and files, and no objects.
func TestThings(t *testing.T) {
	process := plan.Item{Ref: plan.Ref{Name: "demo-root"}, Here: plan.Process}
	files := plan.Item{Ref: plan.Ref{Name: "demo-root-server"}, Here: plan.Files}
	require.Equal(t, "process/demo-root", process.String())
	for want, items := range map[string][]plan.Item{
		"a process and its files": {process, files, files}, "a process": {process}, "files": {files, files},
		"1 object": {{}}, "2 objects": {{}, {}},
	} {
		require.Equal(t, want, plan.Things(items))
	}
}
