// Package integration tests parts of kcpctl together against a real kube-apiserver.
package integration

import (
	"context"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// server is the API server of all tests of this package, and resources are those that it can list before a test adds some.
// They are variables because TestMain has no other way to pass them.
var (
	server    *apiserver.Server
	resources []schema.GroupVersionResource
)

func TestMain(m *testing.M) {
	os.Exit(apiserver.With(m, func(_ context.Context, s *apiserver.Server) (err error) {
		server = s
		resources, err = listable()
		return err
	}))
}

func listable() ([]schema.GroupVersionResource, error) {
	kubeconfig, err := server.Kubeconfig(apiserver.Admin)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := found.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	all, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists))
	return slices.Collect(maps.Keys(all)), err
}

// The API server accepts every object of every example in a dry run. After an apply nothing differs, so no default of
// the API server is reported as a change.
func TestExamplesAreAccepted(t *testing.T) {
	apiserver.Need(t)
	for _, name := range examples.Names() {
		t.Run(name, func(t *testing.T) {
			rt, objects := open(t, name)
			ctx := t.Context()
			first, err := rt.Plan(ctx, objects, run.PlanOptions{})
			require.NoError(t, err)
			require.Equal(t, len(objects), first.Count(plan.Create), first.Summary())
			namespaces := 0
			for _, it := range first.Items {
				if it.Kind == "Namespace" {
					namespaces++
					require.NoError(t, rt.Apply(ctx, []plan.Item{it}, run.PlanOptions{}))
				}
			}
			dry, err := rt.Plan(ctx, objects, run.PlanOptions{})
			require.NoError(t, err, "a dry run refused an object")
			require.Empty(t, dry.Conflicts)
			require.Equal(t, len(objects)-namespaces, dry.Count(plan.Create), dry.Summary())
			require.NoError(t, rt.Apply(ctx, dry.Items, run.PlanOptions{}))
			again, err := rt.Plan(ctx, objects, run.PlanOptions{})
			require.NoError(t, err)
			require.Equal(t, len(objects), again.Count(plan.Unchanged), again.Summary())
		})
	}
}

// open renders an example and opens its runtime.
func open(t *testing.T, name string) (*kube.Runtime, []render.Object) {
	t.Helper()
	text, err := examples.Read(name)
	require.NoError(t, err)
	return openText(t, name, string(text))
}

// openText renders a setup and opens its runtime, with namespaces that have a name in theirs. What the setup has outside
// of namespaces, and setups of other tests, too, is removed at the end of the test.
func openText(t *testing.T, name, text string) (*kube.Runtime, []render.Object) {
	t.Helper()
	kubeconfig, err := server.Kubeconfig(apiserver.Admin)
	require.NoError(t, err)
	s, unique := topologytest.Setup(t, text), server.Unique("test-"+name)
	for i := range s.Spec.Clusters {
		c := &s.Spec.Clusters[i]
		c.Context, c.Kubeconfig, c.Namespace = "", kubeconfig, unique+"-"+c.Name
	}
	top := topology.Build(s)
	objects, err := render.Objects(top, pkitest.Issue(t, top, time.Now()))
	require.NoError(t, err)
	// Objects in workspaces need a kcp. Here is none.
	objects = slices.DeleteFunc(objects, func(o render.Object) bool { return o.Workspace != "" })
	_, client := connect(t)
	for _, o := range objects {
		k, err := kind.Of(o.GroupVersionKind())
		require.NoError(t, err)
		if k.ClusterScoped && k.GroupVersionKind != kind.Namespace.GroupVersionKind {
			apiserver.Remove(t, client.Resource(k.GVR()), o.GetName())
		}
	}
	rt, err := kube.New(top, kube.Options{
		Version: "test", Holder: kube.Holder{Host: "test", PID: os.Getpid(), User: "tester"}, StateDir: t.TempDir(), Now: time.Now,
		Notify: func(m string) { t.Log(m) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	return rt, objects
}
