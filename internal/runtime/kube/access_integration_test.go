package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/facts"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

func TestAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})

	other := f.runtime(f.topology)
	require.NoError(t, other.clusters.home.Connect(t.Context()))
	other.clusters.home.UID = types.UID("another")
	objects := f.objects(other)
	_, err := other.Plan(t.Context(), objects, run.PlanOptions{})
	require.Equal(t, clierr.Failed, clierr.Code(err))
	require.ErrorContains(t, err, "(UID another)")
	require.ErrorContains(t, err, string(r.clusters.home.UID))
	require.Contains(t, clierr.Hint(err), "--allow other-cluster")

	p, err := accepting(other).Plan(t.Context(), objects, run.PlanOptions{})
	require.NoError(t, err)
	require.True(t, p.Stale, "the other cluster has yet to be remembered")
	require.NoError(t, other.Finish(t.Context(), p, &record.Record{}, plan.Applied{Setup: []byte("setup")}))
	other.installation.allowOtherCluster = false
	_, err = other.Plan(t.Context(), objects, run.PlanOptions{})
	require.NoError(t, err)
	_, err = r.Plan(t.Context(), objects, run.PlanOptions{})
	require.Error(t, err)
}

func TestThisMachineRemembersTheCluster(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	info, err := os.Stat(filepath.Join(f.stateDir, "clusters", "demo.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	err = r.clusters.home.Resource(kind.Secret.GVR()).Delete(t.Context(), "demo-inventory", metav1.DeleteOptions{})
	require.NoError(t, err)

	other := f.runtime(f.topology)
	require.NoError(t, other.clusters.home.Connect(t.Context()))
	other.clusters.home.UID = types.UID("another")
	_, err = other.Plan(t.Context(), f.objects(other), run.PlanOptions{})
	require.ErrorContains(t, err, "(UID another)")
	f.stateDir = t.TempDir()
	other = f.runtime(f.topology)
	require.NoError(t, other.clusters.home.Connect(t.Context()))
	other.clusters.home.UID = types.UID("another")
	_, err = other.Plan(t.Context(), f.objects(other), run.PlanOptions{})
	require.NoError(t, err)
}

func TestConnectionProblemsSayWhatToDo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	admin, err := server.Kubeconfig(apiserver.Admin)
	require.NoError(t, err)
	raw, err := os.ReadFile(admin)
	require.NoError(t, err)
	write := func(name, old, replacement string) string {
		path := filepath.Join(t.TempDir(), name)
		text := string(raw)
		require.Contains(t, text, old)
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, old, replacement)), 0o600))
		return path
	}
	for name, tc := range map[string]struct {
		cluster    topology.Cluster
		want, hint string
	}{
		"no kubeconfig":   {topology.Cluster{Kubeconfig: "/nowhere"}, "no such file", "spec.clusters[].kubeconfig"},
		"unknown context": {topology.Cluster{Kubeconfig: admin, Context: "prod"}, `context "prod" does not exist`, "the kubeconfig has admin"},
		"unreachable":     {topology.Cluster{Kubeconfig: write("u", server.URL, "https://127.0.0.1:1")}, "does not answer", "/readyz"},
		"unknown host":    {topology.Cluster{Kubeconfig: write("h", server.URL, "https://nowhere.invalid:1")}, "does not answer", "/readyz"},
		"wrong TLS name":  {topology.Cluster{Kubeconfig: write("n", "https://127.0.0.1", "https://localhost")}, "no secure connection", "kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.cluster.Name, tc.cluster.Namespace = "eu", f.namespace
			r, err := New(&topology.Topology{Name: "demo", Home: tc.cluster, Clusters: []topology.Cluster{tc.cluster}}, f.options())
			if err == nil {
				_, err = r.Record(t.Context())
			}
			require.ErrorContains(t, err, tc.want)
			require.Equal(t, clierr.Failed, clierr.Code(err))
			require.Contains(t, clierr.Hint(err), tc.hint)
		})
	}
}

// createNamespace makes the fixture's namespace as an administrator would.
func (f *fixture) createNamespace(r *Runtime) {
	f.t.Helper()
	ns := &unstructured.Unstructured{}
	ns.SetGroupVersionKind(kind.Namespace.GroupVersionKind)
	ns.SetName(f.namespace)
	_, err := r.clusters.home.Dynamic.Resource(kind.Namespace.GVR()).Create(f.t.Context(), ns, metav1.CreateOptions{})
	require.NoError(f.t, err)
}

// grant binds a user to cluster roles: in the fixture's namespace, or everywhere.
func (f *fixture) grant(r *Runtime, kind, user string, roles ...string) {
	f.t.Helper()
	gv := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	for _, role := range roles {
		binding := &unstructured.Unstructured{Object: map[string]any{
			"subjects": []any{map[string]any{"kind": "User", "name": user, "apiGroup": gv.Group}},
			"roleRef":  map[string]any{"kind": "ClusterRole", "name": role, "apiGroup": gv.Group},
		}}
		binding.SetGroupVersionKind(gv.WithKind(kind))
		binding.SetName(user + ":" + role)
		client := r.clusters.home.Resource(gv.WithResource("rolebindings"))
		if kind == "ClusterRoleBinding" {
			client = r.clusters.home.Dynamic.Resource(gv.WithResource("clusterrolebindings"))
			apiserver.Remove(f.t, client, binding.GetName())
		}
		_, err := client.Create(f.t.Context(), binding, metav1.CreateOptions{})
		require.NoError(f.t, err)
	}
}

// preflight runs the checks of every up.
func (f *fixture) preflight(r *Runtime, objects []render.Object) error {
	return check.Run(f.t.Context(), &check.Subject{Topology: r.topology, Runtime: r, Objects: objects, Now: time.Now}, check.Quick()).Err()
}

func TestPreflightListsAllMissingPermissions(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	admin := f.runtime(f.topology)
	objects := f.objects(admin)
	require.NoError(t, f.preflight(admin, objects), "an administrator may do everything")

	f.grant(admin, "ClusterRoleBinding", "viewer", "system:aggregate-to-view")
	r := f.runtime(f.parse(sharded, "viewer"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		err := f.preflight(r, objects)
		for _, want := range []string{
			"create namespaces", "patch deployments.apps in namespace " + f.namespace, "create pods/portforward", "update leases.coordination.k8s.io",
			"list secrets",
		} {
			assert.ErrorContains(c, err, want)
		}
		assert.NotContains(c, err.Error(), "list pods")
	}, time.Minute, 50*time.Millisecond)
	_, err := r.Record(t.Context())
	require.ErrorContains(t, err, "create pods/portforward", "what a run asks for first says it all")
	_, err = r.Plan(t.Context(), objects, run.PlanOptions{})
	require.ErrorContains(t, err, "read Secret demo-inventory: not allowed")
}

func TestTheAdministratorOfANamespaceCanUseIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	admin := f.runtime(f.topology)
	f.createNamespace(admin)
	// These three make up the role admin, which only a controller puts together.
	f.grant(admin, "RoleBinding", "tenant", "system:aggregate-to-admin", "system:aggregate-to-edit", "system:aggregate-to-view")

	r := f.runtime(f.parse(sharded, "tenant"))
	objects := f.objects(admin)
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.NoError(c, f.preflight(r, objects)) }, time.Minute, 50*time.Millisecond)
	f.up(r, run.PlanOptions{})
	require.True(t, f.up(r, run.PlanOptions{}).Empty())
}

// A namespace that the setup has created does not have to be patched: its labels are for users. The administrator of
// the namespace may not, and neither may the job that renews certificates.
func TestANamespaceOfTheSetupNeedsNoPatch(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"tenant", "renewer"} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			f := newRecorded(t, sharded)
			admin := f.runtime(f.topology)
			f.up(admin, run.PlanOptions{})
			f.tenant(admin.clusters.home, "tenant")
			inNamespace, inCluster := facts.RulesToApply(f.namespace, f.objects(admin))
			require.Empty(t, inCluster)
			f.bind(admin, "renewer", inNamespace)

			r := f.runtime(f.parse(f.named(sharded), user))
			require.True(t, f.upSoon(r).Empty())
			service := r.topology.Component("root-shard").Object()
			require.NoError(t, admin.clusters.home.Resource(kind.Service.GVR()).Delete(t.Context(), service, metav1.DeleteOptions{}))
			require.Equal(t, []string{"create Service/" + service}, changes(f.up(r, run.PlanOptions{})))

			f.label(t, admin, topology.LabelSetup, "changed")
			p, err := f.planWith(r, run.PlanOptions{})
			require.NoError(t, err)
			require.Empty(t, changes(p))
			notes := strings.Join(p.Notes(), "\n")
			require.Equal(t, "Namespace/"+f.namespace+": its labels and annotations stay as they are, because the user may not patch namespaces", notes)
		})
	}
}

// bind gives a user some permissions in the fixture's namespace.
func (f *fixture) bind(r *Runtime, user string, all []rbacv1.PolicyRule) {
	f.t.Helper()
	var rules []any
	for _, rule := range all {
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rule)
		require.NoError(f.t, err)
		rules = append(rules, raw)
	}
	const group = "rbac.authorization.k8s.io"
	f.create(f.t, r, group+"/v1", "Role", "roles", user, map[string]any{"rules": rules})
	f.create(f.t, r, group+"/v1", "RoleBinding", "rolebindings", user, map[string]any{
		"subjects": []any{map[string]any{"kind": "User", "name": user, "apiGroup": group}},
		"roleRef":  map[string]any{"kind": "Role", "name": user, "apiGroup": group},
	})
}

// upSoon brings a setup up as a user whose permissions take a moment.
func (f *fixture) upSoon(r *Runtime) *plan.Plan {
	f.t.Helper()
	require.EventuallyWithT(f.t, func(c *assert.CollectT) {
		r.clusters.previous.reset()
		_, err := f.planWith(r, run.PlanOptions{})
		assert.NoError(c, err)
	}, time.Minute, 50*time.Millisecond)
	return f.up(r, run.PlanOptions{})
}

// tenant lets a user do in a place what the administrator of a namespace may.
func (f *fixture) tenant(cl *cluster.Client, user string) {
	f.t.Helper()
	f.grant(at(cl), "RoleBinding", user, "system:aggregate-to-admin", "system:aggregate-to-edit", "system:aggregate-to-view")
}

// A job that takes backups reads everything that it needs with its permissions, and may write nothing.
func TestBackupsNeedFewPermissions(t *testing.T) {
	t.Parallel()
	f := newRecorded(t, sharded)
	admin := f.runtime(f.topology)
	f.up(admin, run.PlanOptions{})
	f.bind(admin, "saver", facts.RulesToBackUp(f.namespace))
	r := f.runtime(f.parse(f.named(sharded), "saver"))
	root := f.topology.Component("etcd/root")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		known, err := r.Record(t.Context())
		assert.NoError(c, err)
		assert.False(c, known.Empty())
	}, time.Minute, 50*time.Millisecond)
	history, err := r.History(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, history)
	state, err := r.Store().Load(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, state.CAs)
	require.NotEmpty(t, state.Leaves)
	_, err = r.MemberStart(t.Context(), root)
	require.NoError(t, err)
	_, err = r.DialMember(t.Context(), root, root.Object()+"-0")
	require.ErrorContains(t, err, "is not running", "there are no pods, and the user may ask for them")
	changed := f.record(admin, state)
	changed.Restoring = "demo-20261126T012016Z"
	require.ErrorContains(t, r.Keep(t.Context(), changed), "not allowed")
}

const external = `spec:
  clusters: [{name: eu, kubeconfig: %q, namespace: %s}]
  image: {pullSecrets: [registry]}
  etcd: {external: {endpoints: ["https://etcd:2379"], tlsSecret: etcd-client}}
`

func TestPreflightListsAllMissingReferences(t *testing.T) {
	t.Parallel()
	f := newFixture(t, external)
	r := f.runtime(f.topology)
	objects := f.objects(r)
	err := f.preflight(r, objects)
	require.ErrorContains(t, err, "Secret/"+f.namespace+"/registry, used by Deployment/demo-root (imagePullSecrets) and 1 more")
	require.ErrorContains(t, err, "Secret/"+f.namespace+"/etcd-client, used by Deployment/demo-root (volume config)")

	f.createNamespace(r)
	f.as("kubectl", r, kind.Secret, "registry", map[string]any{})
	f.as("kubectl", r, kind.Secret, "etcd-client", map[string]any{"stringData": map[string]any{"tls.crt": "", "tls.key": ""}})
	err = f.preflight(r, objects)
	require.ErrorContains(t, err, "key ca.crt of Secret/"+f.namespace+"/etcd-client")
	require.NotContains(t, err.Error(), "registry")
	f.as("kubectl", r, kind.Secret, "etcd-client", map[string]any{"stringData": map[string]any{"tls.crt": "", "tls.key": "", "ca.crt": ""}})
	require.NoError(t, f.preflight(r, objects))
}

func TestTheFasterRunKeepsItsPKI(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	one, two := f.runtime(f.topology), f.runtime(f.topology)
	first, second := f.pki(one), f.pki(two)
	f.createNamespace(one)
	require.NoError(t, one.Store().Save(t.Context(), first))
	require.ErrorIs(t, two.Store().Save(t.Context(), second), pki.ErrChanged)
	require.Equal(t, "Secret "+f.namespace+"/demo-pki", two.Store().String())

	kept, err := two.Store().Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, first.CAs, kept.CAs)
	require.NoError(t, two.Store().Save(t.Context(), kept))
	require.NoError(t, one.Store().Save(t.Context(), first), "nothing has changed since")
}

func TestLeavesAreReadFromTheSecretsThatUseThem(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	state, err := r.Store().Load(t.Context())
	require.NoError(t, err)
	want := 0
	for _, o := range f.objects(r) {
		if typ, _, _ := unstructured.NestedString(o.Object, "type"); typ == "kubernetes.io/tls" {
			want++
			require.Contains(t, state.Leaves, pki.LeafKey{Cluster: "eu", Secret: o.GetName()})
		}
	}
	require.Len(t, state.Leaves, want)
}
