package adopt_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/adopt"
)

// finish removes what is left of the installation, and returns what was deleted.
func finish(t *testing.T, i *adopt.Installation, client *fake.FakeDynamicClient) (deleted []string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, failed := i.Remains(t.Context(), origin, applySet)
		for _, step := range []func() error{
			func() error { return failed },
			func() error { return i.Release(t.Context(), r) },
			func() error { return i.StopServers(t.Context(), r) },
			func() error { return i.RemoveObjects(t.Context(), r) },
		} {
			if err = step(); err != nil {
				break
			}
		}
	})
	for _, a := range client.Actions() {
		if d, ok := a.(clienttesting.DeleteAction); ok {
			deleted = append(deleted, d.GetResource().Resource+"/"+d.GetName())
		}
	}
	return deleted, err
}

// Only what belongs to the RootShard of the setup is removed, and its root last.
func TestRemove(t *testing.T) {
	for name, more := range map[string][]runtime.Object{"alone": nil, "beside another installation": another(t)} {
		t.Run(name, func(t *testing.T) {
			i, client := open(t, append(installation(t), more...))
			r, err := i.Remains(t.Context(), origin, applySet)
			require.NoError(t, err)
			require.Equal(t, []string{"root-server-ca", "root-client-ca", "root-requestheader-client-ca"},
				r.Authorities)
			require.Equal(t, len(more) > 0, slices.Contains(r.Left, "Shard a1 (of RootShard a)"), r.Left)
			deleted, err := finish(t, i, client)
			require.NoError(t, err)
			require.Equal(t, []string{"deployments/main-front-proxy", "deployments/root-kcp", "frontproxies/main",
				"shards/alpha", "rootshards/root"}, deleted)
			var patched []string
			for _, a := range client.Actions() {
				if p, ok := a.(clienttesting.PatchAction); ok {
					patched = append(patched, p.GetResource().Resource+"/"+p.GetName())
				}
			}
			require.ElementsMatch(t, []string{
				"services/root-kcp", "services/alpha-shard-kcp", "services/main-front-proxy", "frontproxies/main", "shards/alpha", "rootshards/root",
			}, patched)
			for _, s := range []string{"root-kcp", "alpha-shard-kcp", "main-front-proxy"} {
				o, err := client.Resource(kind.Service.GVR()).Namespace("kcp").Get(t.Context(), s, metav1.GetOptions{})
				require.NoError(t, err)
				require.Empty(t, o.GetOwnerReferences(), "the garbage collector would delete it")
			}
			r, err = i.Remains(t.Context(), origin, applySet)
			require.NoError(t, err)
			require.True(t, r.Empty())
		})
	}
}

// Nothing of two RootShards, and nothing that the setup does not serve, is removed.
func TestWhatCannotBeRemoved(t *testing.T) {
	cache := object(custom, "CacheServer", "shared", nil)
	uses := func(objects []runtime.Object) {
		_ = unstructured.SetNestedField(objects[0].(*unstructured.Unstructured).Object, "shared", "spec", "cache",
			"ref", "name")
	}
	for name, tc := range map[string]struct {
		change func(ours, theirs []runtime.Object) []runtime.Object
		want   string
	}{
		"a shard that the setup does not have": {func(ours, _ []runtime.Object) []runtime.Object {
			return append(ours, member("Shard", "gamma", "root"))
		}, "Shard gamma is not part of the setup: its Service gamma-shard-kcp does not lead to the setup's servers"},
		"a Service of another setup": {func(ours, _ []runtime.Object) []runtime.Object {
			return append(ours, member("FrontProxy", "edge", "root"), service("edge-front-proxy", "FrontProxy", "edge",
				"another"))
		}, "FrontProxy edge is not part of the setup"},
		"a cache server of both": {func(ours, theirs []runtime.Object) []runtime.Object {
			uses(ours)
			uses(theirs)
			return slices.Concat(ours, theirs, []runtime.Object{cache})
		}, "CacheServer shared belongs to the RootShards a, root"},
		"another RootShard of the same name": {func(ours, _ []runtime.Object) []runtime.Object {
			ours[0].(*unstructured.Unstructured).SetUID("other")
			return ours
		}, "has the UID other, and the setup was imported from another one, uid-root; nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			i, client := openWithCache(t, tc.change(installation(t), another(t)))
			deleted, err := finish(t, i, client)
			require.ErrorContains(t, err, tc.want)
			require.NotEmpty(t, clierr.Hint(err))
			require.Empty(t, deleted)
		})
	}
}

// The authorities and the keys are those of the RootShard that the setup was imported from.
func TestPKIOfOneRootShard(t *testing.T) {
	i, _ := open(t, append(another(t), installation(t)...))
	ours, err := i.PKI(t.Context(), origin)
	require.NoError(t, err)
	theirs, err := i.PKI(t.Context(), operator.Origin{Name: "a"})
	require.NoError(t, err)
	require.NotEqual(t, ours.Fingerprints(), theirs.Fingerprints())
	alone, _ := open(t, installation(t))
	_, err = alone.PKI(t.Context(), operator.Origin{Name: "a"})
	require.ErrorContains(t, err, "has no RootShard a, from which the setup was imported")
	require.Len(t, ours.Fingerprints()[pki.KeyRotation{}.Key()].All(), 2, "those of root and alpha")

	_, err = i.Objects(t.Context(), "")
	require.ErrorContains(t, err, "has several RootShards, and a setup is one installation: a, root")
	objects, err := i.Objects(t.Context(), "root")
	require.NoError(t, err)
	require.Len(t, objects, 3)
	_, err = i.Objects(t.Context(), "b")
	require.ErrorContains(t, err, "has no RootShard b")
}

// A kcp-operator that no name shows is found by what it restores, also if the user may not look for its Deployment.
func TestNothingIsRemovedWhileTheOperatorRuns(t *testing.T) {
	named := func(spec map[string]any) func(*fake.FakeDynamicClient) []runtime.Object {
		return func(*fake.FakeDynamicClient) []runtime.Object {
			op := object("apps/v1", "Deployment", "kcp-operator", map[string]any{"spec": spec})
			op.SetNamespace("operators")
			op.SetLabels(map[string]string{"app.kubernetes.io/name": "kcp-operator"})
			return []runtime.Object{op}
		}
	}
	none := map[string]any{"replicas": int64(0)}
	for name, tc := range map[string]struct {
		more func(*fake.FakeDynamicClient) []runtime.Object
		// back is the resource that a running kcp-operator restores.
		back, want string
		denied     bool
	}{
		"a replica": {more: named(map[string]any{"replicas": int64(1)}),
			want: "kcp-operator runs (Deployment/operators/kcp-operator)"},
		"the default": {more: named(map[string]any{}),
			want: "kcp-operator runs (Deployment/operators/kcp-operator)"},
		"none":                            {more: named(none)},
		"none, and the user may not look": {more: named(none), denied: true},
		"another name restores finalizers": {more: named(none), back: "shards",
			want: "a kcp-operator runs: it has restored the finalizer of Shard alpha"},
		"another cluster restores owners": {more: named(none), back: "services", denied: true,
			want: "a kcp-operator runs: it has restored the owner of Service"},
	} {
		t.Run(name, func(t *testing.T) {
			i, client := open(t, append(installation(t), tc.more(nil)...))
			client.PrependReactor("list", "deployments", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return tc.denied &&
						a.GetNamespace() == "", nil, apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"},
						"", errors.New(`User "ann" cannot list them`))
			})
			client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return a.GetResource().Resource == tc.back, object("v1", "Service", "x",
					nil), nil // as if it was restored at once
			})
			deleted, err := finish(t, i, client)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.NotEmpty(t, clierr.Hint(err))
			require.Empty(t, deleted)
		})
	}
}

// Who may not read the objects of kcp-operator does not remove any.
func TestWhoMayNotLookRemovesNothing(t *testing.T) {
	i, client := open(t, installation(t))
	client.PrependReactor("list", "shards", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "shards"}, "",
			errors.New(`User "ann" cannot list them`))
	})
	deleted, err := finish(t, i, client)
	require.Error(t, err)
	require.Empty(t, deleted)
}

// The garbage collector would delete what pods of the setup use.
func TestObjectsInUse(t *testing.T) {
	secret := func(name string) *unstructured.Unstructured { return object("v1", "Secret", name, nil) }
	issued := secret("issued")
	issued.SetAnnotations(map[string]string{"cert-manager.io/certificate-name": "edge"})
	own := secret("own")
	own.SetAnnotations(map[string]string{"cert-manager.io/certificate-name": "mine"})
	i, _ := open(t, []runtime.Object{
		ownedBy(secret("config"), custom, "Shard", "alpha"), ownedBy(object("v1", "ConfigMap", "policy", nil),
			"deploy.operator.kcp.io/v1alpha1", "CompiledShard", "alpha"),
		issued, own, secret("free"), ownedBy(secret("by-certificate"), "cert-manager.io/v1", "Certificate",
			"edge"), ownedBy(secret("apps"), "apps/v1", "Deployment", "x"),
		ownedBy(object("cert-manager.io/v1", "Certificate", "edge", map[string]any{}), custom, "FrontProxy",
			"main"), object("cert-manager.io/v1", "Certificate", "mine", nil),
	})
	use := func(k kind.Kind, names ...string) error {
		var uses []adopt.Use
		for _, n := range names {
			uses = append(uses, adopt.Use{Kind: k, Name: n, By: "Deployment/demo-root (volume v)"})
		}
		return i.RefuseUsed(t.Context(), uses)
	}
	require.NoError(t, use(kind.Secret, "own", "free", "apps", "missing"))
	for name, want := range map[string]string{
		"config": "Secret/kcp/config, used by Deployment/demo-root (volume v): the garbage collector deletes it " +
			"together with Shard alpha",
		"issued": "Certificate edge, which is deleted together with the objects of kcp-operator, renews " +
			"it", "by-certificate": "Secret/kcp/by-certificate, used by",
	} {
		err := use(kind.Secret, "free", name)
		require.ErrorContains(t, err, want)
		require.Contains(t, clierr.Hint(err), "copy each of them to an object of your own")
	}
	require.ErrorContains(t, use(kind.ConfigMap, "policy"), "together with CompiledShard alpha")
}
