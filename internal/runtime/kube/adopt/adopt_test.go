package adopt_test

import (
	"encoding/base64"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/adopt"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const custom = operator.Group + "/" + operator.Version

func object(apiVersion, kind, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	for k, v := range fields {
		o.Object[k] = v
	}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	o.SetNamespace("kcp")
	return o
}

// ownedBy adds an owner to an object.
func ownedBy(o *unstructured.Unstructured, apiVersion, kind, name string) *unstructured.Unstructured {
	_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"apiVersion": apiVersion, "kind": kind, "name": name,
		"uid": "uid-" + name}}, "metadata", "ownerReferences")
	return o
}

const applySet = "demo"

// origin is the RootShard of installation.
var origin = operator.Origin{Name: "root", UID: "uid-root"}

// member returns an object of kcp-operator's APIs that refers to a RootShard.
func member(kind, name, rootShard string) *unstructured.Unstructured {
	o := object(custom, kind, name,
		map[string]any{"spec": map[string]any{"rootShard": map[string]any{"ref": map[string]any{"name": rootShard}}}})
	o.SetUID(types.UID("uid-" + name))
	return o
}

// service returns a Service that a setup has taken over from an object of kcp-operator. Without a setup, it is
// kcp-operator's.
func service(name, kind, owner, set string) *unstructured.Unstructured {
	o := ownedBy(object("v1", "Service", name, nil), "deploy.operator.kcp.io/v1alpha1", "Compiled"+kind, owner)
	if set != "" {
		o.SetLabels(map[string]string{topology.LabelApplySet: set})
	}
	return o
}

func keySecret(name string, p pki.Pair) *unstructured.Unstructured {
	return object("v1", "Secret", name, map[string]any{"data": map[string]any{
		"tls.crt": base64.StdEncoding.EncodeToString(p.Cert), "tls.key": base64.StdEncoding.EncodeToString(p.Key),
	}})
}

// deployment returns a Deployment with the labels of kcp-operator.
func deployment(name, component, instance string) *unstructured.Unstructured {
	return object("apps/v1", "Deployment", name, map[string]any{"spec": map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"a": name}}, "template": map[string]any{"metadata": map[string]any{"labels": map[string]any{
			"app.kubernetes.io/managed-by": operator.ManagedBy, "app.kubernetes.io/component": component, "app.kubernetes.io/instance": instance,
		}}},
	}})
}

// installation is an installation of kcp-operator with two shards. A setup has taken it over. The namespace also has a
// Deployment of the setup.
func installation(t *testing.T) []runtime.Object {
	theirs := pkitest.Issue(t, topologytest.Build(t, ""), time.Now())
	shard := member("Shard", "alpha", "root")
	shard.Object["status"] = map[string]any{"phase": "Running"}
	shard.SetFinalizers([]string{"operator.kcp.io/cleanup-shard", "example.com/other"})
	shard.SetResourceVersion("7")
	root := object(custom, "RootShard", "root", nil)
	root.SetUID("uid-root")
	return []runtime.Object{
		root, shard, member("FrontProxy", "main", "root"),
		keySecret("root-server-ca", theirs.CAs[topology.ServerCA].Pair), keySecret("root-client-ca",
			theirs.CAs[topology.ClientCA].Pair),
		keySecret("root-requestheader-client-ca", theirs.CAs[topology.RequestHeaderCA].Pair),
		keySecret("root-service-account", theirs.CAs[topology.EtcdCA].Pair), keySecret("alpha-service-account",
			theirs.CAs[topology.ServerCA].Pair),
		service("root-kcp", "RootShard", "root", applySet), service("alpha-shard-kcp", "Shard", "alpha", applySet),
		service("main-front-proxy", "FrontProxy", "main", applySet),
		ownedBy(object("apps/v1", "Deployment", "root-kcp", nil), custom, "RootShard",
			"root"), deployment("main-front-proxy", "front-proxy", "main"),
		object("apps/v1", "Deployment", "demo-root", nil),
	}
}

// another is another installation in the same namespace.
func another(t *testing.T) []runtime.Object {
	theirs := pkitest.Issue(t, topologytest.Build(t, ""), time.Now())
	root := object(custom, "RootShard", "a", nil)
	root.SetUID("uid-a")
	shard := member("Shard", "a1", "a")
	shard.SetFinalizers([]string{"operator.kcp.io/cleanup-shard"})
	return []runtime.Object{
		root, shard, member("FrontProxy", "a-edge", "a"),
		keySecret("a-server-ca", theirs.CAs[topology.ServerCA].Pair), keySecret("a-client-ca",
			theirs.CAs[topology.ClientCA].Pair),
		keySecret("a-requestheader-client-ca", theirs.CAs[topology.RequestHeaderCA].Pair),
		keySecret("a-service-account", theirs.CAs[topology.EtcdCA].Pair), keySecret("a1-service-account",
			theirs.CAs[topology.ServerCA].Pair),
		service("a-kcp", "RootShard", "a", ""), service("a1-shard-kcp", "Shard", "a1",
			""), service("a-edge-front-proxy", "FrontProxy", "a-edge", ""),
		deployment("a-kcp", "rootshard", "a"), deployment("a-proxy", "rootshard-proxy", "a"), deployment("a1-shard-kcp",
			"shard", "a1"),
	}
}

func open(t *testing.T, objects []runtime.Object) (*adopt.Installation, *fake.FakeDynamicClient) {
	i, client := openWithCache(t, objects)
	client.PrependReactor("list", "cacheservers", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "") // a cluster without this API
	})
	return i, client
}

func openWithCache(t *testing.T, objects []runtime.Object) (*adopt.Installation, *fake.FakeDynamicClient) {
	kinds := map[schema.GroupVersionResource]string{}
	for _, r := range operator.Resources {
		kinds[schema.GroupVersionResource{Group: operator.Group, Version: operator.Version, Resource: r.Name}] = r.Kind + "List"
	}
	for resource, kind := range map[string]string{"secrets": "SecretList", "services": "ServiceList", "pods": "PodList",
		"configmaps": "ConfigMapList"} {
		kinds[schema.GroupVersionResource{Version: "v1", Resource: resource}] = kind
	}
	kinds[schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}] = "DeploymentList"
	kinds[schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1",
		Resource: "certificates"}] = "CertificateList"
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
	i, err := adopt.Open(topology.Cluster{Name: "default", Namespace: "kcp"}, cluster.Options{
		Now: time.Now, Notify: func(string, ...any) {},
		API: func(topology.Cluster) (*cluster.API, error) {
			return &cluster.API{Context: "test", Dynamic: client}, nil
		},
	})
	require.NoError(t, err)
	return i, client
}

func TestObjects(t *testing.T) {
	i, _ := open(t, installation(t))
	objects, err := i.Objects(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, objects, 3)
	for _, o := range objects {
		require.Empty(t, o.GetFinalizers())
		require.NotContains(t, o.Object, "status")
	}
	i, _ = open(t, nil)
	_, err = i.Objects(t.Context(), "")
	require.EqualError(t, err, "context test, namespace kcp has no RootShard of kcp-operator")
	require.Contains(t, clierr.Hint(err), "kubectl --context test get rootshards.operator.kcp.io --all-namespaces")
}

// What runs says the release of an object that does not: the default of kcp-operator is another one in each release.
func TestObjectsHaveTheReleaseThatRuns(t *testing.T) {
	runs := func(name, image string) runtime.Object {
		return object("apps/v1", "Deployment", name, map[string]any{"spec": map[string]any{"template": map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "kcp", "image": image}}},
		}}})
	}
	all := slices.DeleteFunc(installation(t), func(o runtime.Object) bool {
		return o.(*unstructured.Unstructured).GetKind() == "Deployment"
	})
	other := member("FrontProxy", "edge", "root")
	require.NoError(t, unstructured.SetNestedField(other.Object, "v0.30.1", "spec", "image", "tag"))
	all = append(all, other, member("FrontProxy", "absent", "root"),
		runs("root-kcp", "ghcr.io/kcp-dev/kcp:v0.30.3"), runs("alpha-shard-kcp", "localhost:5000/kcp:v0.30.2"),
		runs("main-front-proxy", "ghcr.io/kcp-dev/kcp@sha256:0123"), runs("edge-front-proxy", "kcp:v0.30.3"))
	i, client := open(t, all)
	objects, err := i.Objects(t.Context(), "")
	require.NoError(t, err)
	got := map[string]string{}
	for _, o := range objects {
		got[o.GetName()], _, _ = unstructured.NestedString(o.Object, "spec", "image", "tag")
	}
	require.Equal(t, map[string]string{"root": "v0.30.3", "alpha": "v0.30.2", "main": "", "edge": "v0.30.1",
		"absent": ""}, got)

	client.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "root-kcp", nil)
	})
	_, err = i.Objects(t.Context(), "")
	require.ErrorContains(t, err, "Deployment")
}

func TestPKI(t *testing.T) {
	all := installation(t)
	i, _ := open(t, all)
	s, err := i.PKI(t.Context(), origin)
	require.NoError(t, err)
	require.Len(t, s.CAs, 3)
	imported, _, err := pki.Import(&pki.State{}, s, time.Now())
	require.NoError(t, err)
	n, err := pki.EarlierKeys(imported)
	require.NoError(t, err)
	require.Equal(t, 1, n, "the key of the other shard")

	i, _ = open(t, slices.DeleteFunc(all, func(o runtime.Object) bool {
		return o.(*unstructured.Unstructured).GetName() == "alpha-service-account"
	}))
	_, err = i.PKI(t.Context(), origin)
	require.EqualError(t, err, "Secret kcp/alpha-service-account (context test, namespace kcp) does not exist")
}

func TestAnInstallationOfTheChartIsNamed(t *testing.T) {
	release := func(chart string) runtime.Object {
		o := object("apps/v1", "Deployment", "prod-kcp", nil)
		o.SetLabels(map[string]string{"helm.sh/chart": chart, "app.kubernetes.io/instance": "prod"})
		return o
	}
	i, _ := open(t, []runtime.Object{release("kcp-0.16.0")})
	for _, read := range []func() error{
		func() error { _, err := i.Objects(t.Context(), ""); return err },
		func() error { _, err := i.PKI(t.Context(), origin); return err },
	} {
		err := read()
		require.EqualError(t, err, "context test, namespace kcp has the release prod of the helm chart kcp 0.16.0: "+
			"only an installation of kcp-operator can be taken over while it runs")
		require.Contains(t, clierr.Hint(err), "helm get values prod --all -n kcp -o yaml > values.yaml; kcpctl import -f values.yaml -n kcp")
	}
	i, _ = open(t, []runtime.Object{release("kcp-operator-0.9.0")})
	_, err := i.Objects(t.Context(), "")
	require.ErrorContains(t, err, "has no RootShard of kcp-operator")
}

// Further authorities of clients are trusted by all components of a setup, so they are taken over only if that was so
// before.
func TestClientBundles(t *testing.T) {
	other := pkitest.Issue(t, topologytest.Build(t, ""), time.Now()).CAs[topology.ClientCA]
	bundle := func(name string, cert []byte) runtime.Object {
		return object("v1", "Secret", name, map[string]any{"data": map[string]any{"tls.crt": base64.StdEncoding.EncodeToString(cert)}})
	}
	refer := func(objects []runtime.Object, names ...string) []runtime.Object {
		for n, name := range names {
			if name != "" {
				unstructured.SetNestedField(objects[n].(*unstructured.Unstructured).Object, name, "spec", "clientCABundleRef", "name")
			}
		}
		return objects
	}
	for name, tc := range map[string]struct {
		names  []string // of the root shard and of alpha
		secret runtime.Object
		want   string
	}{
		"none":           {nil, nil, ""},
		"the same":       {[]string{"partners", "partners"}, bundle("partners", other.Cert), ""},
		"some only":      {[]string{"", "partners"}, bundle("partners", other.Cert), "Shard alpha trusts the client certificates of the authorities in Secret kcp/partners, and RootShard root does not"},
		"others":         {[]string{"more", "partners"}, bundle("partners", other.Cert), "all components of a setup trust the same ones; nothing was changed"},
		"missing":        {[]string{"partners", "partners"}, nil, "Secret kcp/partners (context test, namespace kcp), which "},
		"no certificate": {[]string{"partners", "partners"}, bundle("partners", []byte("x")), "the certificates that are trusted together with Secret kcp/root-client-ca"},
	} {
		t.Run(name, func(t *testing.T) {
			all := refer(slices.Delete(installation(t), 2, 3), tc.names...) // without the front-proxy
			if tc.secret != nil {
				all = append(all, tc.secret)
			}
			i, _ := open(t, all)
			s, err := i.PKI(t.Context(), origin)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				require.NotEmpty(t, clierr.Hint(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, len(tc.names) > 0, len(s.CAs[topology.ClientCA].Bundle) > 0)
			require.Empty(t, s.CAs[topology.ServerCA].Bundle)
			if len(tc.names) > 0 {
				require.Contains(t, string(s.CAs[topology.ClientCA].Trusted()), string(other.Cert))
			}
		})
	}
}
