package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/plan"
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
	require.Equal(t, "Namespace/kcp", plan.Ref{GroupVersionKind: schema.GroupVersionKind{Kind: "Namespace"}, Name: "kcp"}.String())
}

func TestSame(t *testing.T) {
	object := func(change func(o map[string]any)) *unstructured.Unstructured {
		o := map[string]any{
			"kind":     "Deployment",
			"metadata": map[string]any{"name": "demo", "labels": map[string]any{"a": "1"}},
			"spec":     map[string]any{"replicas": int64(1), "list": []any{"x", map[string]any{"y": true}}},
		}
		change(o)
		return &unstructured.Unstructured{Object: o}
	}
	meta := func(o map[string]any) map[string]any { return o["metadata"].(map[string]any) }
	for name, tc := range map[string]struct {
		change func(o map[string]any)
		want   bool
	}{
		"equal":            {func(map[string]any) {}, true},
		"status":           {func(o map[string]any) { o["status"] = map[string]any{"replicas": int64(1)} }, true},
		"resource version": {func(o map[string]any) { meta(o)["resourceVersion"] = "7" }, true},
		"bookkeeping": {func(o map[string]any) {
			for _, k := range []string{"managedFields", "generation", "uid", "creationTimestamp"} {
				meta(o)[k] = "x"
			}
		}, true},
		"a value deep inside": {func(o map[string]any) { o["spec"].(map[string]any)["list"].([]any)[1].(map[string]any)["y"] = false }, false},
		"a label more":        {func(o map[string]any) { meta(o)["labels"].(map[string]any)["b"] = "2" }, false},
		"a finalizer":         {func(o map[string]any) { meta(o)["finalizers"] = []any{"x"} }, false},
		"no spec":             {func(o map[string]any) { delete(o, "spec") }, false},
		"another part":        {func(o map[string]any) { o["data"] = map[string]any{} }, false},
		"a null more":         {func(o map[string]any) { o["data"] = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := object(func(map[string]any) {}), object(tc.change)
			require.Equal(t, tc.want, plan.Same(a, b))
			require.Equal(t, tc.want, plan.Same(b, a))
		})
	}
}
