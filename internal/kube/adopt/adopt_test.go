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
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kube/adopt"
	"github.com/kcpctl/kcpctl/internal/kube/cluster"
	"github.com/kcpctl/kcpctl/internal/operator"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
	"github.com/kcpctl/kcpctl/internal/topology"
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

// ownedBy adds an owner of the installation to an object.
func ownedBy(o *unstructured.Unstructured, apiVersion string) *unstructured.Unstructured {
	unstructured.SetNestedSlice(o.Object, []any{map[string]any{"apiVersion": apiVersion, "kind": "X", "name": "x", "uid": "1"}}, "metadata", "ownerReferences")
	return o
}

// installation is an installation of kcp-operator with two shards, and what else is in its namespace.
func installation(t *testing.T) []runtime.Object {
	theirs := pkitest.Issue(t, topologytest.Build(t, ""), time.Now())
	secret := func(name string, p pki.Pair) runtime.Object {
		return object("v1", "Secret", name, map[string]any{"data": map[string]any{
			"tls.crt": base64.StdEncoding.EncodeToString(p.Cert), "tls.key": base64.StdEncoding.EncodeToString(p.Key),
		}})
	}
	shard := object(custom, "Shard", "alpha", map[string]any{"status": map[string]any{"phase": "Running"}})
	shard.SetFinalizers([]string{"operator.kcp.io/cleanup-shard", "example.com/other"})
	shard.SetResourceVersion("7")
	alias := ownedBy(object("v1", "Service", "root-kcp", nil), "deploy.operator.kcp.io/v1alpha1")
	alias.SetLabels(map[string]string{topology.LabelApplySet: "demo"})
	pods := map[string]any{"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "template": map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app.kubernetes.io/managed-by": operator.ManagedBy, "app.kubernetes.io/component": "front-proxy"}},
	}}}
	return []runtime.Object{
		object(custom, "RootShard", "root", nil), shard,
		secret("root-server-ca", theirs.CAs[topology.ServerCA].Pair), secret("root-client-ca", theirs.CAs[topology.ClientCA].Pair),
		secret("root-requestheader-client-ca", theirs.CAs[topology.RequestHeaderCA].Pair),
		secret("root-service-account", theirs.CAs[topology.EtcdCA].Pair), secret("alpha-service-account", theirs.CAs[topology.ServerCA].Pair),
		alias, ownedBy(object("v1", "Service", "alpha-shard-kcp", nil), custom),
		ownedBy(object("apps/v1", "Deployment", "root-kcp", nil), custom), object("apps/v1", "Deployment", "main-front-proxy", pods),
		object("apps/v1", "Deployment", "demo-root", nil),
	}
}

func open(t *testing.T, objects []runtime.Object) (*adopt.Installation, *fake.FakeDynamicClient) {
	kinds := map[schema.GroupVersionResource]string{}
	for _, r := range operator.Resources {
		kinds[schema.GroupVersionResource{Group: operator.Group, Version: operator.Version, Resource: r.Name}] = r.Kind + "List"
	}
	for resource, kind := range map[string]string{"secrets": "SecretList", "services": "ServiceList", "pods": "PodList"} {
		kinds[schema.GroupVersionResource{Version: "v1", Resource: resource}] = kind
	}
	kinds[schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}] = "DeploymentList"
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
	client.PrependReactor("list", "cacheservers", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "") // a cluster without this API
	})
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
	objects, err := i.Objects(t.Context())
	require.NoError(t, err)
	require.Len(t, objects, 2)
	for _, o := range objects {
		require.Empty(t, o.GetFinalizers())
		require.NotContains(t, o.Object, "status")
	}
	i, _ = open(t, nil)
	_, err = i.Objects(t.Context())
	require.EqualError(t, err, "context test, namespace kcp has no RootShard of kcp-operator")
	require.Contains(t, clierr.Hint(err), "kubectl --context test get rootshards.operator.kcp.io --all-namespaces")
}

func TestPKI(t *testing.T) {
	all := installation(t)
	i, _ := open(t, all)
	s, err := i.PKI(t.Context())
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
	_, err = i.PKI(t.Context())
	require.EqualError(t, err, "Secret kcp/alpha-service-account (context test, namespace kcp) does not exist")
}

func TestRemove(t *testing.T) {
	i, client := open(t, installation(t))
	r, err := i.Remains(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"root-server-ca", "root-client-ca", "root-requestheader-client-ca"}, r.Authorities)
	require.NoError(t, i.StopServers(t.Context(), r))
	require.NoError(t, i.RemoveObjects(t.Context(), r))
	var deleted, patched []string
	for _, a := range client.Actions() {
		switch a := a.(type) {
		case clienttesting.DeleteAction:
			deleted = append(deleted, a.GetResource().Resource+"/"+a.GetName())
		case clienttesting.PatchAction:
			patched = append(patched, a.GetName()+" "+string(a.GetPatch()))
		}
	}
	require.Equal(t, []string{"deployments/main-front-proxy", "deployments/root-kcp", "shards/alpha", "rootshards/root"}, deleted)
	require.Equal(t, []string{
		`root-kcp {"metadata":{"ownerReferences":[],"resourceVersion":""}}`,
		`alpha {"metadata":{"finalizers":["example.com/other"],"resourceVersion":"7"}}`,
	}, patched, "the Service that kcpctl has taken over, and the Shard without the finalizer of kcp-operator")
	r, err = i.Remains(t.Context())
	require.NoError(t, err)
	require.True(t, r.Empty())
}

func TestNothingIsRemovedWhileTheOperatorRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		spec map[string]any
		runs bool
	}{
		"a replica": {map[string]any{"replicas": int64(1)}, true}, "the default": {map[string]any{}, true}, "none": {map[string]any{"replicas": int64(0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			op := object("apps/v1", "Deployment", "kcp-operator", map[string]any{"spec": tc.spec})
			op.SetNamespace("operators")
			op.SetLabels(map[string]string{"app.kubernetes.io/name": "kcp-operator"})
			i, _ := open(t, append(installation(t), op))
			_, err := i.Remains(t.Context())
			if !tc.runs {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "kcp-operator runs (Deployment/operators/kcp-operator)")
			require.Equal(t, "stop it: kubectl --context test -n operators scale deployment kcp-operator --replicas=0", clierr.Hint(err))
		})
	}
}

func TestAnInstallationOfTheChartIsNamed(t *testing.T) {
	release := func(chart string) runtime.Object {
		o := object("apps/v1", "Deployment", "prod-kcp", nil)
		o.SetLabels(map[string]string{"helm.sh/chart": chart, "app.kubernetes.io/instance": "prod"})
		return o
	}
	i, _ := open(t, []runtime.Object{release("kcp-0.16.0")})
	for _, read := range []func() error{
		func() error { _, err := i.Objects(t.Context()); return err },
		func() error { _, err := i.PKI(t.Context()); return err },
	} {
		err := read()
		require.EqualError(t, err, "context test, namespace kcp has the release prod of the helm chart kcp 0.16.0: "+
			"only an installation of kcp-operator can be taken over while it runs")
		require.Contains(t, clierr.Hint(err), "helm get values prod --all -n kcp -o yaml > values.yaml; kcpctl import -f values.yaml -n kcp")
	}
	i, _ = open(t, []runtime.Object{release("kcp-operator-0.9.0")})
	_, err := i.Objects(t.Context())
	require.ErrorContains(t, err, "has no RootShard of kcp-operator")
}

// Further authorities of clients are trusted by all components of a setup, so they are taken over only if that was so before.
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
			all := refer(installation(t), tc.names...)
			if tc.secret != nil {
				all = append(all, tc.secret)
			}
			i, _ := open(t, all)
			s, err := i.PKI(t.Context())
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
