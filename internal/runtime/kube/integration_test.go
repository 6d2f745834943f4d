package kube

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// server is the API server of all tests of this package; TestMain cannot pass it on in another way. With -short it is
// nil, and every fixture skips its test.
//
// The tests are parallel unless they make objects without a namespace that other tests see: nodes, storage classes,
// classes of Ingresses and CustomResourceDefinitions, or a node port. These are serial, which means that no other test
// runs meanwhile: the tests of facts, expose, takeover and pruning. apiserver.Remove removes what they make.
var server *apiserver.Server

func TestMain(m *testing.M) {
	os.Exit(apiserver.With(m, func(_ context.Context, s *apiserver.Server) error {
		server = s
		return nil
	}))
}

// fixture is a setup in a namespace of its own.
type fixture struct {
	t         *testing.T
	topology  *topology.Topology
	stateDir  string
	namespace string
	// recorded fixtures keep a record, as real runs do. Each has a setup of a name of its own: the others are on the
	// same cluster.
	recorded bool
}

// sharded has two shards, a cache server and a front-proxy.
const sharded = `spec:
  clusters: [{name: eu, kubeconfig: %q, namespace: %s}]
  cacheServer: {}
  shards: [{name: alpha}, {name: beta}]
`

func newFixture(t *testing.T, file string) *fixture {
	t.Helper()
	f := inNamespace(t)
	f.topology = f.parse(file, apiserver.Admin)
	return f
}

// newRecorded is a fixture that keeps a record.
func newRecorded(t *testing.T, file string) *fixture {
	t.Helper()
	f := inNamespace(t)
	f.recorded = true
	f.topology = f.parse(f.named(file), apiserver.Admin)
	return f
}

// inNamespace is a fixture without a setup. It skips the test if there is no API server.
func inNamespace(t *testing.T) *fixture {
	t.Helper()
	apiserver.Need(t)
	return &fixture{t: t, stateDir: t.TempDir(), namespace: server.Unique("test")}
}

// named gives the setup of a file the fixture's name.
func (f *fixture) named(file string) string {
	return strings.Replace(topologytest.File(file), "{name: demo}", "{name: kcp-of-"+f.namespace+"}", 1)
}

// record is what a run knows of the installation that it makes or changes.
func (f *fixture) record(r *Runtime, state *pki.State) *record.Record {
	f.t.Helper()
	known, err := r.Record(f.t.Context())
	require.NoError(f.t, err)
	if !f.recorded {
		return known
	}
	home := r.clusters.home.Cluster
	rec := known.With(state, map[topology.ID]record.Data{"root-shard": {Cluster: home.Name, Namespace: home.Namespace, Etcd: "managed etcd/root"}})
	rec.SetAddresses(r.topology.Assigned())
	return rec
}

// parse builds the topology of a setup file for a user.
func (f *fixture) parse(file, user string, groups ...string) *topology.Topology {
	f.t.Helper()
	kubeconfig, err := server.Kubeconfig(user, groups...)
	require.NoError(f.t, err)
	return topologytest.Build(f.t, fmt.Sprintf(file, kubeconfig, f.namespace))
}

func (f *fixture) options() Options {
	return Options{
		Version: "v0.1.0", Holder: Holder{Host: "test", PID: os.Getpid(), Machine: "test", User: "tester"}, StateDir: f.stateDir,
		Now: time.Now, Notify: func(m string) { f.t.Log("notify:", m) },
	}
}

// runtime connects as another run of kcpctl would.
func (f *fixture) runtime(t *topology.Topology) *Runtime {
	f.t.Helper()
	r, err := New(t, f.options())
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, r.Close()) })
	return r
}

// pki is the setup's PKI: what the cluster keeps, and what is missing of it.
func (f *fixture) pki(r *Runtime) *pki.State {
	f.t.Helper()
	state, err := r.Store().Load(f.t.Context())
	require.NoError(f.t, err)
	res, err := pki.Ensure(r.topology, state, pki.Options{Now: time.Now()})
	require.NoError(f.t, err)
	return res.State
}

// objects renders the topology with the PKI of the cluster.
func (f *fixture) objects(r *Runtime) []render.Object {
	f.t.Helper()
	return f.render(r.topology, f.pki(r))
}

// render renders a topology without the objects in workspaces: no kcp runs here.
func (f *fixture) render(top *topology.Topology, state *pki.State) []render.Object {
	f.t.Helper()
	objects, err := render.Objects(top, state)
	require.NoError(f.t, err)
	return slices.DeleteFunc(objects, func(o render.Object) bool { return o.Workspace != "" })
}

// up plans and applies as the engine does, without the waits.
func (f *fixture) up(r *Runtime, o run.PlanOptions) *plan.Plan {
	f.t.Helper()
	ctx, state := f.t.Context(), f.pki(r)
	p, err := r.Plan(ctx, f.render(r.topology, state), o)
	require.NoError(f.t, err)
	require.Empty(f.t, p.Conflicts)
	if p.Empty() {
		return p
	}
	require.NoError(f.t, r.Apply(ctx, only(p.Items, "Namespace", plan.Create), o))
	ctx, unlock, err := r.Lock(ctx)
	require.NoError(f.t, err)
	defer unlock()
	rec := f.record(r, state)
	require.NoError(f.t, r.Store().Save(ctx, state))
	require.NoError(f.t, r.Begin(ctx, p, rec))
	require.NoError(f.t, r.Apply(ctx, slices.Concat(only(p.Items, "", plan.Create), only(p.Items, "", plan.Change)), o))
	require.NoError(f.t, r.Finish(ctx, p, rec, plan.Applied{Setup: []byte("setup of " + f.namespace)}))
	return p
}

// only returns the items of a kind, or of all kinds but Namespaces, that have an action.
func only(items []plan.Item, kind string, a plan.Action) []plan.Item {
	return slices.DeleteFunc(slices.Clone(items), func(it plan.Item) bool {
		return it.Action != a || (it.Kind != kind && kind != "") || (kind == "" && it.Kind == "Namespace")
	})
}

// changes returns the objects of a plan that are not unchanged, with their action.
func changes(p *plan.Plan) []string {
	var out []string
	for _, it := range p.Items {
		if it.Action != plan.Unchanged {
			out = append(out, string(it.Action)+" "+it.Kind+"/"+it.Name)
		}
	}
	return out
}

// versions returns the resource versions of everything in the namespace that kcpctl writes.
func (f *fixture) versions(r *Runtime) map[string]string {
	f.t.Helper()
	out := map[string]string{}
	require.NoError(f.t, r.clusters.each(f.t.Context(), func(ctx context.Context, cl *cluster.Client) error {
		resources := []kind.Kind{}
		for _, k := range kind.Applied {
			if !k.ClusterScoped {
				resources = append(resources, k)
			}
		}
		for _, k := range resources {
			l, err := cl.List(ctx, k, "")
			if err != nil {
				return err
			}
			for i := range l {
				out[k.Kind+"/"+l[i].GetName()] = l[i].GetResourceVersion()
			}
		}
		l, err := cl.Resource(kind.Leases).Get(ctx, r.locker.Name, metav1.GetOptions{})
		if err == nil {
			out["Lease"] = l.GetResourceVersion()
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}))
	return out
}

// as applies a part of an object as another field manager.
func (f *fixture) as(manager string, r *Runtime, k kind.Kind, name string, fields map[string]any) {
	f.t.Helper()
	fields["apiVersion"], fields["kind"] = k.GroupVersion().String(), k.Kind
	u := &unstructured.Unstructured{Object: fields}
	u.SetName(name)
	_, err := r.clusters.home.Resource(k.GVR()).Apply(f.t.Context(), name, u, metav1.ApplyOptions{FieldManager: manager, Force: true})
	require.NoError(f.t, err)
}

func (f *fixture) live(r *Runtime, k kind.Kind, name string) *unstructured.Unstructured {
	f.t.Helper()
	require.NoError(f.t, r.clusters.home.Connect(f.t.Context()))
	o, err := r.clusters.home.Get(f.t.Context(), k, name)
	require.NoError(f.t, err)
	return o
}

// at is a runtime for helpers that need nothing but its home cluster.
func at(home *cluster.Client) *Runtime { return &Runtime{clusters: &clusters{home: home}} }

// hints returns the hints of all errors that are joined.
func hints(err error) string {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return clierr.Hint(err)
	}
	var out []string
	for _, e := range joined.Unwrap() {
		out = append(out, hints(e))
	}
	return strings.Join(out, "\n")
}
