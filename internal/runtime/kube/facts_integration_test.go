package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// noDNS is a machine without a network of its own.
type noDNS struct{ check.System }

func (*noDNS) LookupHost(context.Context, string) ([]string, error) {
	return nil, errors.New("no such host")
}

// breakage is something wrong with a cluster, and the check that has to find it.
type breakage struct {
	// spec is the end of the setup file.
	spec string
	user string
	// spoil makes what is wrong, in the namespace.
	spoil func(t *testing.T, f *fixture, admin *Runtime)
	// ahead is how far this machine's clock is ahead.
	ahead time.Duration
	id    string
	want  check.Status
	says  []string
}

func breakages() map[string]breakage {
	return map[string]breakage{
		"the user may only look": {
			user: "looker", id: "KCP002", want: check.Fail,
			says: []string{"not allowed", "patch deployments.apps", "create pods/portforward"},
		},
		"the clocks differ by ten minutes": {
			ahead: 10 * time.Minute, id: "KCP004", want: check.Fail, says: []string{"behind this machine's"},
		},
		"the clocks differ by two minutes": {
			ahead: -2 * time.Minute, id: "KCP004", want: check.Warn, says: []string{"ahead of this machine's"},
		},
		"the PKI store is damaged": {
			spoil: func(t *testing.T, f *fixture, admin *Runtime) {
				f.create(t, admin, "v1", "Secret", "secrets", "demo-pki", map[string]any{"stringData": map[string]any{"server-ca.crt": "rubbish"}})
			},
			id: "KCP005", want: check.Fail, says: []string{"demo-pki"},
		},
		"a Secret is missing": {
			spec: "  etcd: {external: {endpoints: [\"https://etcd.example.com:2379\"], tlsSecret: etcd-client}}\n",
			id:   "KCP011", want: check.Fail, says: []string{"Secret/", "/etcd-client", "used by Deployment/demo-root"},
		},
		"there is no storage class": {
			id: "KCP012", want: check.Fail, says: []string{"no default storage class", "etcd/root"},
		},
		"a storage class is misspelt": {
			spec: "  etcd: {managed: {storageClassName: fats}}\n",
			id:   "KCP012", want: check.Fail, says: []string{`storage class "fats"`},
		},
		"the quota is too small": {
			spoil: func(t *testing.T, f *fixture, admin *Runtime) {
				f.create(t, admin, "v1", "ResourceQuota", "resourcequotas", "small", map[string]any{
					"spec": map[string]any{"hard": map[string]any{"pods": "1"}},
				})
				f.setStatus(t, admin, "resourcequotas", "small", map[string]any{"hard": map[string]any{"pods": "1"}, "used": map[string]any{"pods": "0"}})
			},
			id: "KCP013", want: check.Fail, says: []string{"ResourceQuota/small: the setup needs 3 more of pods, but only 1 of 1 are left"},
		},
		"pod security forbids the host's network": {
			spec: "  defaults: {podTemplate: {spec: {hostNetwork: true}}}\n",
			spoil: func(t *testing.T, f *fixture, admin *Runtime) {
				f.label(t, admin, "pod-security.kubernetes.io/enforce", "restricted")
			},
			id: "KCP014", want: check.Fail, says: []string{"does not admit pods of", "Deployment/demo-root", "violates PodSecurity", "host namespaces"},
		},
		"a LimitRange is in the way": {
			spec: "  defaults: {resources: {requests: {cpu: \"2\"}}}\n",
			spoil: func(t *testing.T, f *fixture, admin *Runtime) {
				f.create(t, admin, "v1", "LimitRange", "limitranges", "small", map[string]any{
					"spec": map[string]any{"limits": []any{map[string]any{"type": "Container", "max": map[string]any{"cpu": "1"}}}},
				})
			},
			id: "KCP014", want: check.Fail, says: []string{"must be less than or equal to cpu limit of 1"},
		},
		"no node is of the image's architecture": {
			spoil: func(t *testing.T, f *fixture, admin *Runtime) {
				f.node(t, admin, "mainframe", "s390x")
			},
			id: "KCP015", want: check.Fail, says: []string{"all nodes are s390x"},
		},
		"the node port is taken": {
			spec: "  frontProxies: [{name: main, service: {type: NodePort, ports: [{port: 6443, nodePort: 31443}]}}]\n",
			spoil: func(t *testing.T, f *fixture, admin *Runtime) {
				apiserver.Remove(t, admin.clusters.home.Resource(kind.Service.GVR()), "other")
				f.create(t, admin, "v1", "Service", "services", "other", map[string]any{
					"spec": map[string]any{"type": "NodePort", "ports": []any{map[string]any{"port": int64(80), "nodePort": int64(31443)}}},
				})
			},
			id: "KCP016", want: check.Fail, says: []string{"node port 31443, which Service/demo-front-proxy-main requests, is in use by Service/", "/other"},
		},
		"the host name does not resolve": {
			spec: "  external: {hostname: kcp.nowhere.example.com}\n",
			id:   "KCP021", want: check.Warn, says: []string{"kcp.nowhere.example.com does not resolve"},
		},
	}
}

// small is the smallest setup on a cluster.
const small = `spec:
  clusters: [{name: eu, kubeconfig: %q, namespace: %s}]
`

// Every breakage is named by the check whose business it is.
func TestChecksNameTheCause(t *testing.T) {
	all := breakages()
	for _, name := range slices.Sorted(maps.Keys(all)) { // in the same order each time: they share the nodes of a cluster
		b := all[name]
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, small+b.spec)
			admin := f.runtime(f.topology)
			f.createNamespace(admin)
			if b.spoil != nil {
				b.spoil(t, f, admin)
			}
			top := f.topology
			if b.user != "" {
				top = f.parse(small+b.spec, b.user)
			}
			// No node runs here, so pods that try addresses would wait for one.
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go func() { _ = f.failPod(ctx, admin) }()
			res := result(t, f.checks(t, top, b.ahead), b.id)
			require.Equal(t, b.want, res.Status, "%+v", res)
			for _, s := range b.says {
				require.Contains(t, res.Cause, s)
			}
			require.NotEmpty(t, res.Fix)
		})
	}
}

func TestChecksOfACleanCluster(t *testing.T) {
	f := newFixture(t, small)
	admin := f.runtime(f.topology)
	f.createNamespace(admin)
	f.cluster(t, admin, "storage.k8s.io/v1", "StorageClass", "storageclasses", "standard", map[string]any{
		"provisioner": "example.com/none",
		"metadata":    map[string]any{"annotations": map[string]any{"storageclass.kubernetes.io/is-default-class": "true"}},
	})
	f.node(t, admin, "usual", "amd64")
	r := f.checks(t, f.topology, 0)
	require.True(t, r.Passed, "%+v", r.Results)
	require.Empty(t, r.Warnings())
}

func TestCheckOfAClusterThatIsDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	file := t.TempDir() + "/kubeconfig"
	require.NoError(t, os.WriteFile(file, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}], "contexts": [{"name": "x", "context": {"cluster": "x"}}]}`), 0o600))
	r := f.checks(t, topologytest.Build(t, fmt.Sprintf(small, file, f.namespace)), 0)
	res := result(t, r, "KCP001")
	require.Equal(t, check.Fail, res.Status)
	require.Contains(t, res.Cause, "does not answer")
	for _, id := range []string{"KCP002", "KCP003", "KCP013", "KCP014"} {
		require.Equal(t, "KCP001 failed", result(t, r, id).Cause)
	}
}

// checks runs those of Before with the PKI of a setup that is not up.
func (f *fixture) checks(t *testing.T, top *topology.Topology, ahead time.Duration) *check.Report {
	t.Helper()
	now := func() time.Time { return time.Now().Add(ahead) }
	o := f.options()
	o.Now = now
	r, err := New(top, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	s := &check.Subject{Topology: top, Runtime: r, Now: now, Network: &noDNS{}, Objects: renderNew(t, top)}
	return check.Run(t.Context(), s, check.Preflight)
}

func result(t *testing.T, r *check.Report, id string) check.Result {
	t.Helper()
	for _, res := range r.Results {
		if res.ID == id {
			return res
		}
	}
	require.Fail(t, "no result", id)
	return check.Result{}
}

func resourceOf(apiVersion, resource string) schema.GroupVersionResource {
	gv, _ := schema.ParseGroupVersion(apiVersion) // a constant of the tests
	return gv.WithResource(resource)
}

func objectOf(apiVersion, kind, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	return o
}

// create makes an object in the namespace.
func (f *fixture) create(t *testing.T, r *Runtime, apiVersion, kind, resource, name string, fields map[string]any) {
	t.Helper()
	_, err := r.clusters.home.Resource(resourceOf(apiVersion, resource)).Create(t.Context(), objectOf(apiVersion, kind, name, fields), metav1.CreateOptions{})
	require.NoError(t, err)
}

// cluster makes an object of the cluster, until the test ends.
func (f *fixture) cluster(t *testing.T, r *Runtime, apiVersion, kind, resource, name string, fields map[string]any) {
	t.Helper()
	client := r.clusters.home.Dynamic.Resource(resourceOf(apiVersion, resource))
	apiserver.Remove(t, client, name)
	_, err := client.Create(t.Context(), objectOf(apiVersion, kind, name, fields), metav1.CreateOptions{})
	require.NoError(t, err)
}

func (f *fixture) setStatus(t *testing.T, r *Runtime, resource, name string, status map[string]any) {
	t.Helper()
	client := r.clusters.home.Resource(resourceOf("v1", resource))
	o, err := client.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	o.Object["status"] = status
	_, err = client.UpdateStatus(t.Context(), o, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func (f *fixture) label(t *testing.T, r *Runtime, key, value string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
	require.NoError(t, err)
	_, err = r.clusters.home.Dynamic.Resource(resourceOf("v1", "namespaces")).Patch(t.Context(), f.namespace, "application/merge-patch+json", patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

func (f *fixture) node(t *testing.T, r *Runtime, name, arch string) {
	t.Helper()
	f.cluster(t, r, "v1", "Node", "nodes", name, map[string]any{})
	client := r.clusters.home.Dynamic.Resource(resourceOf("v1", "nodes"))
	o, err := client.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	o.Object["status"] = map[string]any{"nodeInfo": map[string]any{
		"architecture": arch, "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
		"containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "linux",
	}}
	_, err = client.UpdateStatus(t.Context(), o, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// renderNew renders a setup with a PKI that is not stored.
func renderNew(t *testing.T, top *topology.Topology) []render.Object {
	t.Helper()
	objects, err := render.Objects(top, pkitest.Issue(t, top, time.Now()))
	require.NoError(t, err)
	return objects
}
