package cmd

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/compute"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// rebalancing is a kcp, and what would move there.
type rebalancing struct {
	*compute.Workspace
	preview func(context.Context, roots.State) ([]roots.Move, error)
}

// newRebalancing is a kcp whose controller has published widgets.
func newRebalancing(t *testing.T, moves ...roots.Move) (*rebalancing, *fakeCompute) {
	t.Helper()
	c, w := newCompute(t)
	delete(w.objects, "root:compute Cluster/c2")
	out, err := negotiate.Negotiate(negotiate.Input{
		APIs: []schema.GroupResource{widgets},
		Clusters: []negotiate.Cluster{{Name: "c1", APIs: []negotiate.API{{
			Group: "example.com", Version: "v1", Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		}}}},
	})
	require.NoError(t, err)
	for _, o := range append(out.Schemas, out.Export) {
		w.objects[keyOf(plan.Ref{Workspace: "root:compute", GroupVersionKind: o.GroupVersionKind(), Name: o.GetName()})] = o
	}
	c.APIs = []string{"widgets.example.com"}
	r := &rebalancing{Workspace: c.Workspace}
	r.preview = func(_ context.Context, state roots.State) ([]roots.Move, error) {
		require.Equal(t, []schema.GroupVersionResource{widgets.WithVersion("v1")}, state.Published.Scheduled)
		require.Empty(t, state.Published.Removed)
		require.Equal(t, "c1", state.Clusters[0].Name)
		return moves, nil
	}
	return r, w
}

// Without an object, the request is on the APIExport, and with one only on that: each one has another value.
func TestRebalanceRequests(t *testing.T) {
	r, w := newRebalancing(t)
	w.put(t, "root:team", deployment)
	request := func(o workloadsRebalanceOptions, args ...string) string {
		t.Helper()
		env, out, errs := fakeEnv()
		o.env = env
		require.NoError(t, o.complete(args))
		require.NoError(t, o.request(t.Context(), r.Workspace))
		require.Empty(t, out.String())
		return errs.String()
	}
	on := func(key string) string {
		return w.objects[key].GetAnnotations()[api.AnnotationRebalanceRequest]
	}
	team := rootArg{workspace: "root:team", namespace: "default"}
	require.Contains(t, request(workloadsRebalanceOptions{object: team}, "deploy/web"), "deployments.apps web in root:team")
	require.Equal(t, "2026-11-20T12:00:00Z", on("root:team default Deployment/web"))
	require.Empty(t, on("root:compute APIExport/kubernetes"))
	require.Contains(t, request(workloadsRebalanceOptions{}), "all workloads")
	require.Equal(t, "2026-11-20T12:00:00Z", on("root:compute APIExport/kubernetes"))
}

func TestRebalanceFailures(t *testing.T) {
	r, w := newRebalancing(t)
	w.put(t, "root:team", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web--c1, namespace: default, labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: web}}`)
	w.put(t, "root:team", `
apiVersion: v1
kind: ConfigMap
metadata: {name: files, namespace: default, annotations: {workloads.kcp.dev/explain: "[]"}}`)
	team := rootArg{workspace: "root:team", namespace: "default"}
	for _, tc := range []struct {
		o          workloadsRebalanceOptions
		args       []string
		want, hint string
	}{
		{workloadsRebalanceOptions{object: team}, nil, "--workspace is only used with an object", "KIND/NAME"},
		{workloadsRebalanceOptions{}, []string{"deployment/web"}, "--workspace is required", "-w root:team"},
		{workloadsRebalanceOptions{object: team}, []string{"web"}, `"web" is not an object`, "deployment/web"},
		{workloadsRebalanceOptions{object: team}, []string{"a/b", "c/d"}, "2 arguments", "one object"},
		{workloadsRebalanceOptions{object: team}, []string{"deployment/web"}, `deployments.apps "web" does not exist`, "--in"},
		{workloadsRebalanceOptions{object: team}, []string{"deployment/web--c1"}, "the part of web that runs on cluster c1", "specify deployment/web"},
		{workloadsRebalanceOptions{object: team}, []string{"configmap/files"}, "configmaps files is not rebalanced", "specify a workload that needs it"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			env, _, _ := fakeEnv()
			tc.o.env = env
			err := tc.o.complete(tc.args)
			if err == nil {
				err = tc.o.request(t.Context(), r.Workspace)
			}
			require.ErrorContains(t, err, tc.want)
			require.Contains(t, clierr.Hint(err), tc.hint)
		})
	}
	delete(w.objects, "root:compute APIExport/kubernetes")
	env, _, _ := fakeEnv()
	require.ErrorContains(t, (&workloadsRebalanceOptions{env: env, all: true}).request(t.Context(), r.Workspace), "APIExport kubernetes in root:compute does not exist")
}

// A dry run prints what would move, with paths of workspaces, and requests nothing.
func TestRebalanceDryRun(t *testing.T) {
	move := func(cluster, namespace, name string) roots.Move {
		return roots.Move{
			GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
			Cluster:              cluster, Namespace: namespace, Name: name,
			From: map[string]int64{"c2": 5, "c1": 5}, To: map[string]int64{"c1": 3, "c2": 4, "c3": 3},
		}
	}
	r, w := newRebalancing(t, move("2b", "shop", "cart"), move("1a", "default", "web"), move("1a", "other", "web"))
	w.put(t, "root:team", strings.Replace(deployment, "annotations:", "annotations:\n    kcp.io/cluster: 1a", 1))
	w.put(t, "1a", `{apiVersion: core.kcp.io/v1alpha1, kind: LogicalCluster, metadata: {name: cluster, annotations: {kcp.io/path: "root:team"}}}`)
	list := func(o workloadsRebalanceOptions, args ...string) (string, string) {
		t.Helper()
		env, out, errs := fakeEnv()
		o.env, o.dryRun = env, true
		require.NoError(t, o.complete(args))
		require.NoError(t, o.list(t.Context(), r.Workspace, r.preview))
		return out.String(), errs.String()
	}
	out, _ := list(workloadsRebalanceOptions{})
	require.Equal(t, `WORKSPACE   NAMESPACE   OBJECT                  FROM        TO
2b          shop        deployments.apps/cart   c1=5 c2=5   c1=3 c2=4 c3=3
root:team   default     deployments.apps/web    c1=5 c2=5   c1=3 c2=4 c3=3
root:team   other       deployments.apps/web    c1=5 c2=5   c1=3 c2=4 c3=3
`, out)
	team := rootArg{workspace: "root:team", namespace: "default"}
	out, _ = list(workloadsRebalanceOptions{object: team, output: "jsonpath={.kind} {.items[*].namespace} {.items[0].to.c3}"}, "deployment/web")
	require.Equal(t, "MoveList default 3", strings.TrimSpace(out))
	require.NotContains(t, w.objects["root:compute "+kcpapi.APIExport.Kind+"/kubernetes"].GetAnnotations(), api.AnnotationRebalanceRequest)

	r, _ = newRebalancing(t)
	out, errs := list(workloadsRebalanceOptions{})
	require.Empty(t, out)
	require.Contains(t, errs, "nothing would move")
	r.preview = func(context.Context, roots.State) ([]roots.Move, error) {
		return nil, errors.New("watch deployments.apps: refused")
	}
	env, _, _ := fakeEnv()
	err := (&workloadsRebalanceOptions{env: env, all: true}).list(t.Context(), r.Workspace, r.preview)
	require.ErrorContains(t, err, "refused")
	require.Contains(t, clierr.Hint(err), "--timeout")
}
