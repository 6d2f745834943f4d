package kube

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// link is a connection to an API server that can be cut and healed.
type link struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	isCut    bool
	open     []net.Conn
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	out := &link{listener: l, target: target}
	t.Cleanup(func() { _ = l.Close(); out.set(true) })
	go out.serve()
	return out
}

func (l *link) serve() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", l.target)
		l.mu.Lock()
		if l.isCut || err != nil {
			_ = in.Close()
			if err == nil {
				_ = out.Close()
			}
			l.mu.Unlock()
			continue
		}
		l.open = append(l.open, in, out)
		l.mu.Unlock()
		for from, to := range map[net.Conn]net.Conn{in: out, out: in} {
			go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
		}
	}
}

// set cuts the link, or heals it.
func (l *link) set(isCut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = isCut
	for _, c := range l.open {
		_ = c.Close()
	}
	l.open = nil
}

// twoServers has a shard and a front-proxy on a second cluster, and a front-proxy alone in another namespace of it.
const twoServers = `spec:
  clusters:
  - {name: eu, kubeconfig: %[1]q, namespace: %[2]s}
  - {name: us, kubeconfig: %[3]q, namespace: %[2]s}
  - {name: edge, kubeconfig: %[3]q, namespace: %[2]s-edge}
  external: {hostname: kcp.example.com}
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards: [{name: beta, cluster: us, url: "https://beta.example.com:6443"}]
  frontProxies: [{name: main}, {name: edge, cluster: edge}]
`

// onTwoServers is a setup on two API servers, the second one behind a link.
func onTwoServers(t *testing.T, second *apiserver.Server) (*fixture, *link) {
	t.Helper()
	l := newLink(t, strings.TrimPrefix(second.URL, "https://"))
	path, err := second.Kubeconfig(apiserver.Admin)
	require.NoError(t, err)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	through := filepath.Join(t.TempDir(), "us.kubeconfig")
	require.NoError(t, os.WriteFile(through, bytes.ReplaceAll(raw, []byte(second.URL), []byte("https://"+l.listener.Addr().String())), 0o600))
	f := newRecorded(t, strings.NewReplacer("%[3]q", fmt.Sprintf("%q", through)).Replace(twoServers))
	return f, l
}

// partial plans and applies as a run does that leaves out what cannot be reached.
func (f *fixture) partial(r *Runtime) *plan.Plan {
	f.t.Helper()
	lost := r.Unreachable(f.t.Context())
	r.LeaveOut(lost)
	p := f.upWith(r, plan.Applied{Setup: []byte("partial"), Without: plan.ClustersOf(lost)})
	return p
}

// upWith is up with what is remembered; deletions are left out.
func (f *fixture) upWith(r *Runtime, a plan.Applied) *plan.Plan {
	f.t.Helper()
	ctx, state := f.t.Context(), f.pki(r)
	objects, err := render.Objects(r.topology, state)
	require.NoError(f.t, err)
	p, err := r.Plan(ctx, objects, run.PlanOptions{})
	require.NoError(f.t, err)
	ctx, unlock, err := r.Lock(ctx)
	require.NoError(f.t, err)
	defer unlock()
	rec := f.record(r, state)
	require.NoError(f.t, r.Begin(ctx, p, rec))
	require.NoError(f.t, r.Apply(ctx, slices.Concat(only(p.Items, "", plan.Create), only(p.Items, "", plan.Change)), run.PlanOptions{}))
	require.NoError(f.t, r.Finish(ctx, p, rec, a))
	return p
}

func TestTwoAPIServers(t *testing.T) {
	t.Parallel()
	apiserver.Need(t)
	second, err := apiserver.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, second.Stop()) })
	for name, test := range map[string]func(*testing.T, *apiserver.Server){
		"the Secrets of other clusters":    secretsOfOtherClusters,
		"a cluster that cannot be reached": unreachableCluster,
		"a cluster that is lost":           lostCluster,
		"a cluster without a context":      unconfiguredCluster,
		"each place prunes its own":        placesPruneTheirOwn,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, second)
		})
	}
}

// What the clusters really hold: no key of an authority outside home, and no service-account key without a shard.
func secretsOfOtherClusters(t *testing.T, second *apiserver.Server) {
	f, _ := onTwoServers(t, second)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	state := f.pki(r)
	holders := map[string]bool{}
	for _, cl := range r.clusters.current {
		all, err := cl.Resource(kind.Secret.GVR()).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.NotEmpty(t, all.Items)
		for i := range all.Items {
			secret, err := cluster.ToSecret(&all.Items[i])
			require.NoError(t, err)
			for name, value := range secret.Data {
				for ca, a := range state.CAs {
					has := bytes.Contains(value, a.Key)
					require.True(t, !has || cl == r.clusters.home, "%s: %s[%s] has the key of the %s authority", cl.Name, secret.Name, name, ca)
				}
				if bytes.Contains(value, state.ServiceAccount.Key) {
					holders[cl.Name] = true
				}
			}
		}
	}
	require.Equal(t, map[string]bool{"eu": true, "us": true}, holders)
}

func unreachableCluster(t *testing.T, second *apiserver.Server) {
	f, l := onTwoServers(t, second)
	f.up(f.runtime(f.topology), run.PlanOptions{})
	l.set(true)
	f.as("someone", f.runtime(f.topology), kind.Service, f.topology.Root().Object(), map[string]any{"spec": map[string]any{"sessionAffinity": "ClientIP"}})

	r := f.runtime(f.topology)
	_, err := r.Record(t.Context())
	require.ErrorContains(t, err, "cluster us: the API server", "by default a run needs all clusters")
	_, err = r.Store().Load(t.Context())
	require.ErrorContains(t, err, "does not answer")
	_, err = r.Objects(t.Context())
	require.ErrorContains(t, err, "does not answer")

	lost := r.Unreachable(t.Context())
	require.Equal(t, []string{"us", "edge"}, plan.ClustersOf(lost))
	require.Contains(t, clierr.Hint(lost[0].Err), "check that the cluster is running")
	p := f.partial(r)
	require.NotZero(t, p.Count(plan.Unknown))
	for _, it := range p.Items {
		require.Equal(t, it.Cluster != "eu", it.Action == plan.Unknown, it.String())
	}
	_, err = r.State(t.Context(), f.topology.Component("shard/beta"))
	require.ErrorContains(t, err, "does not answer")
	inv, err := r.installation.inventories.Read(t.Context(), r.clusters.home)
	require.NoError(t, err)
	require.Len(t, inv.Clusters, 3, "the home cluster still knows all places")
	require.NotEmpty(t, inv.Clusters[1].UID)
	require.Equal(t, []string{"us", "edge"}, inv.History[len(inv.History)-1].Without)

	l.set(false)
	next := f.runtime(f.topology)
	p, err = next.Plan(t.Context(), f.objects(next), run.PlanOptions{})
	require.NoError(t, err)
	require.True(t, p.Stale, "the next run completes it, though nothing differs")
	f.upWith(next, plan.Applied{Setup: []byte("complete")})
	require.True(t, f.up(f.runtime(f.topology), run.PlanOptions{}).Empty())
}

// A cluster that goes away between the plan and the end of a run: the error names it, the lock is given back, and the
// next run completes the rest.
func lostCluster(t *testing.T, second *apiserver.Server) {
	f, l := onTwoServers(t, second)
	r := f.runtime(f.topology)
	ctx, state := t.Context(), f.pki(r)
	objects, err := render.Objects(r.topology, state)
	require.NoError(t, err)
	p, err := r.Plan(ctx, objects, run.PlanOptions{})
	require.NoError(t, err)
	require.NoError(t, r.Apply(ctx, only(p.Items, "Namespace", plan.Create), run.PlanOptions{}))
	held, unlock, err := r.Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, r.Store().Save(held, state))
	require.NoError(t, r.Begin(held, p, f.record(r, state)))
	l.set(true)
	limited, cancel := context.WithTimeout(held, 3*time.Second)
	defer cancel()
	items := slices.DeleteFunc(only(p.Items, "", plan.Create), func(it plan.Item) bool { return it.Cluster != "us" })
	require.Error(t, r.Apply(limited, items[:1], run.PlanOptions{}))
	require.NoError(t, held.Err(), "the lock is on the home cluster, and is kept")
	unlock()

	l.set(false)
	require.NotZero(t, f.up(f.runtime(f.topology), run.PlanOptions{}).Count(plan.Create))
	require.True(t, f.up(f.runtime(f.topology), run.PlanOptions{}).Empty())
}

// This machine may lack the kubeconfig of a cluster: it is one that cannot be reached.
func unconfiguredCluster(t *testing.T, second *apiserver.Server) {
	f, _ := onTwoServers(t, second)
	f.up(f.runtime(f.topology), run.PlanOptions{})
	top := *f.topology
	top.Clusters = slices.Clone(top.Clusters)
	top.Clusters[1].Context = "elsewhere"
	r := f.runtime(&top)
	lost := r.Unreachable(t.Context())
	require.Equal(t, []string{"us"}, plan.ClustersOf(lost))
	require.ErrorContains(t, lost[0].Err, `context "elsewhere" does not exist`)
	require.Contains(t, clierr.Hint(lost[0].Err), "the kubeconfig has admin")
	_, err := r.Record(t.Context())
	require.ErrorContains(t, err, "elsewhere")
	require.NotZero(t, f.partial(r).Count(plan.Unknown))
	_, err = r.clusters.current[1].Get(t.Context(), kind.Secret, "x")
	require.ErrorContains(t, err, "elsewhere", "it fails without a network")
}

// Places share an API server, and neither deletes what the other has.
func placesPruneTheirOwn(t *testing.T, second *apiserver.Server) {
	f, _ := onTwoServers(t, second)
	r := f.runtime(f.topology)
	edge := *f
	edge.namespace += "-edge"
	edge.createNamespace(at(r.clusters.current[2])) // no controller would delete one that the setup creates
	f.up(r, run.PlanOptions{})
	sets := map[string]bool{}
	for _, cl := range f.topology.Clusters {
		sets[f.topology.ApplySet(cl)] = true
	}
	require.Len(t, sets, 2, "eu and us have the same namespace, on two clusters")

	s := *f.topology.Setup
	s.Spec.FrontProxies = s.Spec.FrontProxies[:1]
	s.Spec.Clusters = s.Spec.Clusters[:2]
	next := f.runtime(topology.Build(&s))
	p := f.up(next, run.PlanOptions{})
	deleted := map[string]bool{}
	for _, it := range p.Deletions() {
		deleted[it.Cluster+"/"+it.Namespace] = true
	}
	require.Equal(t, map[string]bool{"edge/" + f.namespace + "-edge": true}, deleted)
	for i, want := range []bool{true, true, false} {
		there, err := members(t.Context(), r.clusters.current[i], r.topology, always)
		require.NoError(t, err)
		require.Equal(t, want, len(there) > 0, r.clusters.current[i].Name)
	}
	inv, err := next.installation.inventories.Read(t.Context(), next.clusters.home)
	require.NoError(t, err)
	require.Equal(t, 2, len(inv.Clusters))
	require.True(t, slices.ContainsFunc(inv.Clusters, func(p inventory.Placement) bool { return p.Name == "us" }))
}
