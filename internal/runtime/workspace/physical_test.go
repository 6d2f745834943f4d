package workspace

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// fakeCluster is a physical cluster that keeps what is applied.
type fakeCluster struct {
	// mu guards what a request changes: objects are applied at once.
	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured
	// broken is why it does not answer.
	broken error
	issued int
	// fits is the kubeconfig that can still be used, and kubeconfig the one that is issued, if that is not the same.
	fits, kubeconfig string
}

func name(p plan.Ref) string { return p.Kind + "/" + p.Name }

func (f *fakeCluster) Object(_ context.Context, p plan.Ref) (*unstructured.Unstructured, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[name(p)].DeepCopy(), f.broken
}

func (f *fakeCluster) ApplyObject(_ context.Context, p plan.Ref, o *unstructured.Unstructured, dryRun, _ bool) (*unstructured.Unstructured, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return nil, f.broken
	}
	if p.Namespace != "" && f.objects["Namespace/"+p.Namespace] == nil { // as an API server does, also in a dry run
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, p.Namespace)
	}
	out := o.DeepCopy()
	out.SetUID("uid")
	if !dryRun {
		f.objects[name(p)] = out
	}
	return out, nil
}

func (f *fakeCluster) DeleteObject(_ context.Context, p plan.Ref, _ *unstructured.Unstructured) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.objects, name(p))
	return f.broken
}

func (f *fakeCluster) Objects(_ context.Context, p plan.Ref, _ string) (out []unstructured.Unstructured, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.objects {
		if o.GetKind() == p.Kind && o.GetNamespace() == p.Namespace {
			out = append(out, *o)
		}
	}
	return out, f.broken
}

func (f *fakeCluster) DeleteNamespace(_ context.Context, ns *unstructured.Unstructured) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.objects {
		if o.GetNamespace() == ns.GetName() {
			return o.GetKind() + "/" + o.GetName(), f.broken
		}
	}
	delete(f.objects, "Namespace/"+ns.GetName())
	return "", f.broken
}

func (f *fakeCluster) Issue(_ context.Context, namespace, account string, _ time.Duration) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.issued++
	f.fits = fmt.Sprintf("%s/%s %d", namespace, account, f.issued)
	return []byte(cmp.Or(f.kubeconfig, f.fits)), f.broken
}

func (f *fakeCluster) Identity(context.Context) (string, error) { return "uid", f.broken }

func (f *fakeCluster) Versions(context.Context, schema.GroupKind) ([]string, error) {
	return nil, f.broken
}

func (f *fakeCluster) MayApplyClusterScoped(context.Context, []render.Object) error { return f.broken }

func (f *fakeCluster) Fits(_ context.Context, kubeconfig []byte, _, _ string) bool {
	return f.fits != "" && string(kubeconfig) == f.fits
}

// newPhysical returns a setup with a physical cluster, and its objects: those on the cluster, and all others.
func newPhysical(t *testing.T) (s *objects, f *fakeCluster, onCluster, others []render.Object) {
	t.Helper()
	top := topologytest.Build(t, topologytest.Header+"spec:\n  workloads: {clusters: [{name: c1}]}\n")
	state := pkitest.Issue(t, top, time.Now())
	all, err := render.Objects(top, state)
	require.NoError(t, err)
	for _, o := range all {
		if _, ok := topology.IsPhysical(o.Workspace); ok {
			onCluster = append(onCluster, o)
		} else {
			others = append(others, o)
		}
	}
	f = &fakeCluster{objects: map[string]*unstructured.Unstructured{}}
	s = &objects{topology: top, installations: []string{state.Installation.ID}, open: func(topology.Cluster, string) (Physical, error) { return f, nil }}
	return s, f, onCluster, others
}

// A token of a syncer on this machine is issued once, and is also a file of its own.
func TestTokenOfALocalSyncer(t *testing.T) {
	s, f, _, _ := newPhysical(t)
	s.topology = topologytest.LocalOf(topologytest.Build(t, `spec:
  external: {hostname: kcp.example.com}
  rootShard: {virtualWorkspaceURL: "https://root.example.com:6443"}
  workloads: {clusters: [{name: c1}, {name: c2, context: c2, syncMode: Pull}]}
`).Setup)
	all, err := render.Component(s.topology, pkitest.Issue(t, s.topology, time.Now()), s.topology.Component("cluster/c2"))
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(o render.Object) bool { return o.Workspace == "" && isCredential(o.Unstructured) })
	require.GreaterOrEqual(t, i, 0)
	content := func(o *unstructured.Unstructured, key string) string {
		text, _, _ := unstructured.NestedString(o.Object, "data", key)
		raw, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		return string(raw)
	}
	f.kubeconfig = "apiVersion: v1\nkind: Config\nusers: [{name: cluster, user: {token: abc}}]\n"
	live, err := s.withCredential(t.Context(), nil, all[i].Unstructured, true)
	require.NoError(t, err)
	require.Equal(t, "kcpctl-syncer/demo-syncer-c2-token 1", f.fits)
	require.Equal(t, "abc", content(live, "token"))
	require.Contains(t, content(live, "kubeconfig"), "tokenFile: physical.token")

	f.fits = content(live, "kubeconfig")
	again, err := s.withCredential(t.Context(), live, all[i].Unstructured, true)
	require.NoError(t, err)
	require.Equal(t, live.Object["data"], again.Object["data"])
	require.Equal(t, 1, f.issued)
}

func actions(p *plan.Plan) (out []string) {
	for _, it := range p.Items {
		out = append(out, string(it.Action)+" "+it.Kind)
	}
	return out
}

func TestObjectsOnPhysicalClusters(t *testing.T) {
	s, f, wanted, _ := newPhysical(t)
	mustPlan := func(wanted []render.Object, known []record.Placed) *plan.Plan {
		t.Helper()
		p, err := s.planner(false).plan(t.Context(), wanted, known, run.PlanOptions{})
		require.NoError(t, err)
		require.Empty(t, p.Conflicts)
		return p
	}
	p := mustPlan(wanted, nil)
	require.Equal(t, []string{"create Namespace", "create ServiceAccount", "create ClusterRole", "create ClusterRoleBinding"}, actions(p))
	require.NoError(t, s.apply(t.Context(), p.Items, false, func(string) {}))
	require.Len(t, f.objects, 4)

	p = mustPlan(wanted, nil)
	require.Equal(t, 4, p.Count(plan.Unchanged), actions(p))

	r := &record.Record{}
	r.SetPlaced(p, false)
	require.Len(t, r.Placed, 3, "setups share the namespace")

	f.broken = errors.New("connection refused")
	p = mustPlan(wanted, r.Placed)
	require.Equal(t, 4, p.Count(plan.Unknown), "a cluster that does not answer does not prevent other changes")
	require.Equal(t, 3, mustPlan(nil, r.Placed).Count(plan.Keep))
	err := s.deleteOne(t.Context(), plan.Item{Ref: r.Placed[0].Ref(), Action: plan.Delete})
	require.Contains(t, clierr.Hint(err), "remove it from spec.workloads.clusters")

	f.broken = nil
	p = mustPlan(nil, r.Placed)
	require.Equal(t, 3, p.Count(plan.Delete), actions(p))
	unread := plan.Item{Ref: p.Items[0].Ref, Action: plan.Delete}
	installations := s.installations
	s.installations = []string{"demo-other"}
	require.NoError(t, s.deleteOne(t.Context(), unread))
	require.Len(t, f.objects, 4, "another installation has made an object of that name since")
	s.installations = installations
	require.NoError(t, s.deleteOne(t.Context(), unread))
	require.Len(t, f.objects, 3)
	require.NoError(t, s.delete(t.Context(), p.Items))
	require.Equal(t, []string{"Namespace/kcpctl-syncer"}, slices.Collect(func(yield func(string) bool) {
		for n := range f.objects {
			yield(n)
		}
	}))

	s.topology = topologytest.Build(t, topologytest.Header)
	require.Empty(t, mustPlan(nil, r.Placed).Items, "what is on a cluster that the setup no longer has is forgotten")

	for _, o := range wanted {
		f.objects[name(o.Ref())] = o.Unstructured
	}
	s.removed = map[string]v1alpha1.WorkloadCluster{"c1": {Name: "c1"}}
	p = mustPlan(nil, r.Placed)
	require.Equal(t, 3, p.Count(plan.Delete), "a run that removes the cluster")
	r.SetPlaced(p, true)
	require.Empty(t, r.Placed, "a limited run forgets what it deletes")
}

func TestCredentialsAreIssuedWhenTheyAreApplied(t *testing.T) {
	s, f, _, others := newPhysical(t)
	i := slices.IndexFunc(others, func(o render.Object) bool { return o.GetKind() == "Secret" && o.Workspace == "root:compute" })
	require.GreaterOrEqual(t, i, 0)
	want := others[i].Unstructured
	content := func(live *unstructured.Unstructured, issue bool) (*unstructured.Unstructured, string) {
		t.Helper()
		out, err := s.withCredential(t.Context(), live, want, issue)
		require.NoError(t, err)
		text, _, _ := unstructured.NestedString(out.Object, "data", "kubeconfig")
		raw, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		return out, string(raw)
	}
	_, text := content(nil, false)
	require.Equal(t, issuing, text)
	require.Zero(t, f.issued, "a plan issues nothing")

	live, text := content(nil, true)
	require.Equal(t, "kcpctl-syncer/demo-syncer-c1-token 1", text)
	again, text := content(live, true)
	require.Equal(t, "kcpctl-syncer/demo-syncer-c1-token 1", text, "it still fits")
	require.Equal(t, live, again)

	f.fits = ""
	_, text = content(live, false)
	require.Equal(t, issuing, text, "the plan shows that it is renewed")
	_, text = content(live, true)
	require.Equal(t, "kcpctl-syncer/demo-syncer-c1-token 2", text)
}

// A new Cluster is for the physical cluster that answers, and for no other one that gets its name.
func TestANewClusterHasAnIdentity(t *testing.T) {
	s, f, _, others := newPhysical(t)
	i := slices.IndexFunc(others, func(o render.Object) bool { return o.GetKind() == "Cluster" })
	require.GreaterOrEqual(t, i, 0)
	want := others[i].Unstructured
	identity := func(live *unstructured.Unstructured, issue bool) (string, error) {
		out, err := s.withIdentity(t.Context(), live, want, issue)
		if err != nil {
			return "", err
		}
		return out.GetAnnotations()["workloads.kcp.dev/physical-uid"], nil
	}
	for _, issue := range []bool{false, true} {
		uid, err := identity(nil, issue)
		require.NoError(t, err)
		require.Equal(t, "uid", uid)
	}
	live := want.DeepCopy()
	uid, err := identity(live, true)
	require.NoError(t, err)
	require.Empty(t, uid, "the controller has recorded it")
	live.SetAnnotations(map[string]string{"workloads.kcp.dev/physical-uid": "other"})
	uid, err = identity(live, true)
	require.NoError(t, err)
	require.Equal(t, "other", uid, "it stays")

	f.broken = errors.New("connection refused")
	uid, err = identity(nil, false)
	require.NoError(t, err)
	require.Empty(t, uid)
	_, err = identity(nil, true)
	require.EqualError(t, err, "read the UID of cluster c1: connection refused")
}

func TestFactsAndObjectsOfPhysicalClusters(t *testing.T) {
	s, f, wanted, _ := newPhysical(t)
	missing := errors.New("context c2 does not exist")
	top := topologytest.Build(t, topologytest.Header+"spec:\n  workloads: {clusters: [{name: c1}, {name: c2, context: c2}]}\n")
	rt := Wrap(fakeruntime.New(t, top), top, func(c topology.Cluster, _ string) (Physical, error) {
		if c.Name == "c2" {
			return nil, missing
		}
		return f, nil
	}, time.Now, func(note string) { t.Log(note) })
	known := &record.Record{}
	p, err := s.planner(false).plan(t.Context(), wanted, nil, run.PlanOptions{})
	require.NoError(t, err)
	known.SetPlaced(p, false)
	rt.known = known
	all := rt.Facts().Physical
	require.Len(t, all, 2)
	require.True(t, all[0].Registered)
	require.False(t, all[1].Registered)
	require.ErrorIs(t, all[1].Err, missing)
	identity, err := all[0].Identity(t.Context())
	require.NoError(t, err)
	require.Equal(t, "uid", identity)

	f.objects["ClusterRole/kcpctl:syncer:demo:c1"] = wanted[2].Unstructured
	kind := wanted[2].GroupVersionKind()
	live, err := rt.Read(t.Context(), top.Component("cluster/c1"), kind, "", "kcpctl:syncer:demo:c1")
	require.NoError(t, err)
	require.NotNil(t, live)
	live, err = rt.Read(t.Context(), top.Root(), kind, "", "kcpctl:syncer:demo:c1")
	require.NoError(t, err)
	require.Nil(t, live, "it is on the physical cluster")
}

// Down removes accounts on clusters, and nothing in workspaces: what a workspace loses would be deleted in the
// clusters.
func TestDownHasNoObjectsInWorkspaces(t *testing.T) {
	s, f, onCluster, others := newPhysical(t)
	rt := Wrap(fakeruntime.New(t, s.topology), s.topology, s.open, time.Now, func(note string) { t.Log(note) })
	state := pkitest.Issue(t, s.topology, time.Now())
	known := &record.Record{Installation: state.Installation.ID}
	s.installations = []string{state.Installation.ID}
	p := &plan.Plan{}
	for _, o := range slices.Concat(onCluster, others) {
		if o.Workspace != "" {
			p.Items = append(p.Items, itemOf(o, plan.Unchanged))
		}
	}
	for _, o := range onCluster {
		o.SetLabels(map[string]string{topology.LabelInstallation: state.Installation.ID})
		f.objects[name(o.Ref())] = o.Unstructured
	}
	known.SetPlaced(p, false)
	require.Greater(t, len(known.Placed), len(onCluster))
	rt.use(state)
	require.NoError(t, rt.Begin(t.Context(), &plan.Plan{}, known))
	all, err := rt.Objects(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 3, "accounts, and not the namespace, which setups share")
	before := maps.Clone(f.objects)
	require.NoError(t, rt.Finish(t.Context(), &plan.Plan{Items: all}, known, plan.Applied{}))
	require.Equal(t, before, f.objects, "moves and the removal of shards finish with these items, and keep them")
	for _, it := range all {
		require.True(t, it.Workspace == "" || topology.IsKubernetes(it.Workspace), it.Ref)
	}
}

func TestRefusalsNameTheFieldToCorrect(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "clusterroles"}, "x", errors.New("not allowed"))
	for name, tc := range map[string]struct {
		component   topology.ID
		place       string
		server, has string
	}{
		"a workspace":        {"workspace/root:team", "root:team", "kcp", "correct spec.workspaces in the setup file"},
		"an agent":           {"agent/widgets", "root:widgets", "kcp", "correct spec.agents in the setup file"},
		"a compute object":   {"workloads/controller", "root:compute", "kcp", "correct spec.workloads in the setup file"},
		"a physical cluster": {"cluster/c1", topology.OnPhysical("c1"), "the cluster", "correct spec.workloads in the setup file, or the permissions of the user"},
		"a service cluster":  {"agent/widgets", topology.OnServiceCluster("services"), "the cluster", "correct spec.agents in the setup file, or the permissions of the user"},
	} {
		it := plan.Item{Component: tc.component, Ref: plan.Ref{Workspace: tc.place, Name: "x", GroupVersionKind: schema.GroupVersionKind{Kind: "ClusterRole"}}}
		err := rejected(it, refused)
		require.ErrorContains(t, err, tc.server+" does not accept ClusterRole/x", name)
		require.Contains(t, clierr.Hint(err), tc.has, name)
	}
}
