package kube

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/facts"
)

const place = `  clusters: [{name: eu, kubeconfig: %q, namespace: %s}]
`

// routed has an Ingress and a TLSRoute.
const routed = `spec:
` + place + `  rootShard: {url: "https://root.example.com", expose: {type: Ingress, className: nginx}}
  shards: [{name: beta, url: "https://beta.example.com", expose: {type: TLSRoute, gateway: {name: public}}}]
`

// An API server that serves only an older version of TLSRoute gets that one. Routes are pruned like everything else,
// and setups without routes do not ask for them.
func TestRoutesAreApplied(t *testing.T) {
	f := newFixture(t, routed)
	r := f.runtime(f.topology)
	f.createNamespace(r)
	verify := func() error {
		return facts.New(t.Context(), f.runtime(f.topology).clusters.home, f.topology, time.Now).Serves(t.Context(), f.objects(r))
	}
	err := verify()
	require.ErrorContains(t, err, "IngressClass/nginx, which root-shard needs, does not exist")
	require.ErrorContains(t, err, "the API server does not serve tlsroutes.gateway.networking.k8s.io")

	f.cluster(t, r, "networking.k8s.io/v1", "IngressClass", "ingressclasses", "nginx", map[string]any{"spec": map[string]any{"controller": "example.com/c"}})
	f.serve(t, r, "TLSRoute", "v1alpha2")
	f.serve(t, r, "Gateway", "v1")
	require.ErrorContains(t, verify(), "Gateway/"+f.namespace+"/public, which shard/beta needs, does not exist")
	gateway := func(mode string) map[string]any {
		return map[string]any{"spec": map[string]any{"listeners": []any{
			map[string]any{"name": "tls", "protocol": "TLS", "tls": map[string]any{"mode": mode}},
		}}}
	}
	f.create(t, r, "gateway.networking.k8s.io/v1", "Gateway", "gateways", "public", gateway("Terminate"))
	require.ErrorContains(t, verify(), "has no listener that passes TLS through")
	gateways := r.clusters.home.Resource(resourceOf("gateway.networking.k8s.io/v1", "gateways"))
	require.NoError(t, gateways.Delete(t.Context(), "public", metav1.DeleteOptions{}))
	f.create(t, r, "gateway.networking.k8s.io/v1", "Gateway", "gateways", "public", gateway("Passthrough"))
	require.NoError(t, verify())

	r = f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	require.True(t, f.up(f.runtime(f.topology), run.PlanOptions{}).Empty(), "the second run finds what the first has applied")
	require.NotNil(t, f.live(r, kind.Ingress, "demo-root"))
	stored, err := r.clusters.home.Resource(resourceOf("gateway.networking.k8s.io/v1alpha2", "tlsroutes")).Get(t.Context(), "demo-shard-beta", metav1.GetOptions{})
	require.NoError(t, err)
	hosts, _, _ := unstructured.NestedStringSlice(stored.Object, "spec", "hostnames")
	require.Equal(t, []string{"beta.example.com"}, hosts)

	plain := f.runtime(f.parse("spec:\n"+place+"  shards: [{name: beta}]\n", "admin"))
	p := f.up(plain, run.PlanOptions{})
	require.Contains(t, changes(p), "delete Ingress/demo-root")
	require.Contains(t, changes(p), "delete TLSRoute/demo-shard-beta")
	require.Nil(t, f.live(r, kind.Ingress, "demo-root"))
	require.Nil(t, f.live(f.runtime(f.topology), kind.TLSRoute, "demo-shard-beta"))
	require.True(t, f.up(plain, run.PlanOptions{}).Empty())
}

// serve makes the API server serve a version of a kind of the Gateway API until the test ends.
func (f *fixture) serve(t *testing.T, r *Runtime, kind, version string) {
	t.Helper()
	const group = "gateway.networking.k8s.io"
	plural := strings.ToLower(kind) + "s"
	f.cluster(t, r, "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", plural+"."+group, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api"}},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural},
			"versions": []any{map[string]any{
				"name": version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	})
	gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := r.clusters.home.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		assert.NoError(c, err)
		body, err := r.clusters.home.Read(t.Context(), "/apis/"+group+"/"+version, nil)
		assert.NoError(c, err)
		assert.Contains(c, string(body), plural)
	}, time.Minute, 100*time.Millisecond)
}

// assigned has a load balancer and a node port whose addresses the cluster assigns.
const assigned = `spec:
` + place + `  external: {hostname: auto}
  frontProxies: [{name: main, expose: LoadBalancer}]
  shards: [{name: alpha, url: auto, expose: NodePort}]
`

// The Services come first, and are in the inventory before they exist. The API server chooses the node port, the test
// plays the load balancer. After down the node port is asked for again.
func TestAddressesOfAClusterAreUsed(t *testing.T) {
	f := newRecorded(t, assigned)
	r := f.runtime(f.topology)
	f.createNamespace(r)
	f.node(t, r, "worker", "amd64")
	nodes := r.clusters.home.Dynamic.Resource(resourceOf("v1", "nodes"))
	worker, err := nodes.Get(t.Context(), "worker", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, unstructured.SetNestedSlice(worker.Object, []any{map[string]any{"type": "InternalIP", "address": "192.0.2.9"}}, "status", "addresses"))
	_, err = nodes.UpdateStatus(t.Context(), worker, metav1.UpdateOptions{})
	require.NoError(t, err)

	balanced := f.topology.FrontProxies()[0].Object()
	up := &deploy.Up{
		Topology: f.topology, Runtime: r, Now: time.Now, Network: &noDNS{}, Options: deploy.UpOptions{Timeout: time.Minute},
		Observe: func(e run.Event) {
			if e.Message == "front-proxy/main: Service/"+balanced+" has no load balancer yet" {
				inv, err := r.installation.inventories.Read(t.Context(), r.clusters.home)
				assert.NoError(t, err)
				assert.Contains(t, inv.Kinds, "Service")
				assert.NotEmpty(t, inv.Applying)
				f.setStatus(t, r, "services", balanced, map[string]any{"loadBalancer": map[string]any{
					"ingress": []any{map[string]any{"ip": "203.0.113.7"}},
				}})
			}
		},
	}
	up.Options.IgnoreChecks = ids(check.Preflight) // the cluster has neither nodes nor storage
	known, err := up.Expose(t.Context())
	require.NoError(t, err)
	alpha := known["shard/alpha"]
	require.Equal(t, "203.0.113.7", known["front-proxy/main"].Host)
	require.Equal(t, "192.0.2.9", alpha.Host)
	require.NotZero(t, alpha.Port)

	top := topology.BuildAt(f.topology.Setup, known)
	r = f.runtime(top)
	p := f.up(r, run.PlanOptions{})
	require.NotContains(t, changes(p), "create Service/"+balanced)
	require.True(t, f.up(f.runtime(top), run.PlanOptions{}).Empty())

	items, err := r.Objects(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Delete(t.Context(), items))
	again, err := deploy.KnownAddresses(t.Context(), f.runtime(f.topology), f.topology)
	require.NoError(t, err)
	require.Equal(t, known, again, "they are recorded")
	f.up(f.runtime(topology.BuildAt(f.topology.Setup, again)), run.PlanOptions{})
	service := f.live(r, kind.Service, top.Component("shard/alpha").Object())
	ports, _, _ := unstructured.NestedSlice(service.Object, "spec", "ports")
	require.EqualValues(t, alpha.Port, ports[0].(map[string]any)["nodePort"])
}

func ids(all []check.Check) []string {
	var out []string
	for _, c := range all {
		out = append(out, c.ID)
	}
	return out
}
