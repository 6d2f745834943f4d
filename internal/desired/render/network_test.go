package render_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const inNetworkPolicies = "  networkPolicies: {metricsClients: {team: ops}}\n"

// In any setup, NetworkPolicies let through each connection of the table, and between two components whose addresses
// stay in their namespace nothing else.
func TestNetworkPoliciesAreTheConnections(t *testing.T) {
	for seed := range uint64(20) {
		text := topologytest.Random(rand.New(rand.NewPCG(seed, 2))) + inNetworkPolicies
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			top, _, objects := rendered(t, text)
			n := networkOf(t, top, objects)
			n.everyConnection()
			n.nothingElse()
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}

// network evaluates the NetworkPolicies of a setup, by component.
type network struct {
	*testing.T
	top      *topology.Topology
	policies map[topology.ID]map[string]any
}

func networkOf(t *testing.T, top *topology.Topology, objects []render.Object) network {
	n := network{t, top, map[topology.ID]map[string]any{}}
	for _, o := range objects {
		if o.GetKind() == "NetworkPolicy" {
			n.policies[o.Component] = o.Object["spec"].(map[string]any)
		}
	}
	require.Len(t, n.policies, len(top.Running()))
	return n
}

func (n network) everyConnection() {
	for _, e := range n.top.Edges() {
		for _, id := range e.Clients {
			client := n.top.Component(id)
			if client == nil || !client.Runs() {
				continue
			}
			for _, s := range e.Servers {
				n.connection(e, client, s)
			}
		}
	}
}

func (n network) connection(e topology.Edge, client *topology.Component, s topology.Endpoint) {
	server := n.top.Component(s.Component)
	port := server.Port
	if e.Cert == topology.CertPeer {
		port = server.Storage.PeerPort
	}
	about := fmt.Sprintf("%s dials %s at %s", client.ID(), server.ID(), s)
	near := client.Cluster.Name == server.Cluster.Name && (s.URL == "" || s.Host == server.Host() || s.Host == "localhost")
	if near {
		require.True(n, n.lets("Egress", client, server, port) && n.lets("Ingress", server, client, port), about)
		return
	}
	u, err := url.Parse(s.URL)
	require.NoError(n, err)
	outside, err := strconv.Atoi(u.Port())
	require.NoError(n, err)
	var from *topology.Component
	if s.Host == server.Host() { // another namespace of the same cluster
		from = client
	}
	require.True(n, n.lets("Egress", client, nil, int32(outside)) && n.lets("Ingress", server, from, port), about)
}

func (n network) nothingElse() {
	for _, client := range n.top.Running() {
		for _, server := range n.top.Running() {
			if client.Cluster.Name != server.Cluster.Name || n.lets("Ingress", server, nil, server.Port) {
				continue
			}
			if !n.lets("Ingress", server, client, server.Port) {
				continue
			}
			require.True(n, client.Kind.Dials(server.Kind), "%s can dial %s", client.ID(), server.ID())
			if server.Kind == topology.Etcd && client != server {
				require.Equal(n, server.ID(), client.Storage.Etcd, "%s can dial %s", client.ID(), server.ID())
			}
		}
	}
}

// lets reports whether the policy of a component lets traffic from or to another one through, or from or to anywhere.
func (n network) lets(direction string, c, other *topology.Component, port int32) bool {
	spec := n.policies[c.ID()]
	if !slices.Contains(spec["policyTypes"].([]any), any(direction)) {
		return true
	}
	field, peers := "ingress", "from"
	if direction == "Egress" {
		field, peers = "egress", "to"
	}
	rules, _, _ := unstructured.NestedSlice(spec, field)
	return slices.ContainsFunc(rules, func(rule any) bool {
		r := rule.(map[string]any)
		ports := slices.ContainsFunc(r["ports"].([]any), func(p any) bool {
			return p.(map[string]any)["port"] == int64(port) && p.(map[string]any)["protocol"] == "TCP"
		})
		from, limited := r[peers].([]any)
		return ports && (!limited || other != nil && slices.ContainsFunc(from, func(p any) bool { return selects(p, c, other) }))
	})
}

// selects reports whether a peer of a rule of a component selects the pods of another one.
func selects(peer any, c, other *topology.Component) bool {
	labels, ok, _ := unstructured.NestedStringMap(peer.(map[string]any), "podSelector", "matchLabels")
	have := other.Selector()
	for k, v := range labels {
		ok = ok && have[k] == v
	}
	namespaces := []any{c.Cluster.Namespace}
	if expressions, given, _ := unstructured.NestedSlice(peer.(map[string]any), "namespaceSelector", "matchExpressions"); given {
		namespaces = expressions[0].(map[string]any)["values"].([]any)
	}
	return ok && slices.Contains(namespaces, any(other.Cluster.Namespace))
}

// Components in two namespaces of a cluster connect to each other by names of Services, and so does an agent that is
// added later: nothing that it is alone with has to change for it.
func TestNetworkPoliciesBetweenNamespaces(t *testing.T) {
	const spec = `spec:
  networkPolicies: {}
  external: {hostname: kcp.example.com}
  clusters: [{name: one, namespace: kcp}, {name: two, namespace: kcp-two}, {name: other, context: elsewhere, namespace: kcp-other}%s]
  cacheServer: {cluster: two, url: "https://demo-cache.kcp-two.svc.cluster.local:6443"}
  rootShard: {cluster: one, url: "https://demo-root.kcp.svc.cluster.local:6443"}
  shards: [{name: beta, cluster: two, url: "https://demo-shard-beta.kcp-two.svc.cluster.local:6443"}]
  frontProxies: [{name: main, cluster: one}]
`
	top, _, objects := rendered(t, fmt.Sprintf(spec, ""))
	n := networkOf(t, top, objects)
	n.everyConnection()
	root, beta, cache := top.Root(), top.Component("shard/beta"), top.Component("cache-server")
	for _, server := range []*topology.Component{root, beta, cache} {
		require.False(t, n.lets("Ingress", server, nil, server.Port), "only components can dial %s", server.ID())
		require.NotContains(t, fmt.Sprint(n.policies[server.ID()]["ingress"]), "kcp-other", "another cluster has other pods")
	}
	require.True(t, n.lets("Ingress", cache, root, cache.Port))
	require.False(t, n.lets("Ingress", root, cache, root.Port), "a cache server dials no shard")

	withAgent, _, objects := rendered(t, fmt.Sprintf(spec, ", {name: agents, namespace: demo-agents}")+`  agents:
  - {name: widgets, cluster: agents, workspace: "root:widgets", publishedResources: [{name: widgets, spec: {resource: {kind: Widget, apiGroup: example.com, versions: [v1]}}}]}
`)
	later := networkOf(t, withAgent, objects)
	later.everyConnection()
	require.True(t, later.lets("Ingress", withAgent.Root(), withAgent.Component("agent/widgets"), root.Port))
}

// agent add puts an agent into a namespace of its own, and applies only the agent: the NetworkPolicies of shards admit
// it there already.
func TestNetworkPoliciesStayWithANewAgent(t *testing.T) {
	policies := func(more string) map[topology.ID]map[string]any {
		top, _, objects := rendered(t, "spec:\n  networkPolicies: {}\n  shards: [{name: alpha}]\n"+more)
		n := networkOf(t, top, objects)
		n.everyConnection()
		return n.policies
	}
	was := policies("")
	is := policies(`  clusters: [{name: default}, {name: agents, namespace: demo-agents}]
  rootShard: {cluster: default}
  agents:
  - {name: widgets, cluster: agents, workspace: "root:widgets", publishedResources: [{name: widgets, spec: {resource: {kind: Widget, apiGroup: example.com, versions: [v1]}}}]}
`)
	require.Contains(t, is, topology.ID("agent/widgets"))
	for id, policy := range was {
		require.Equal(t, policy, is[id], id)
	}
}

// A front-proxy reaches the servers of its path mappings, and no other component does.
func TestNetworkPoliciesOfPathMappings(t *testing.T) {
	top, _, objects := rendered(t, `spec:
  frontProxies: [{name: main, pathMappings: [{path: /tms/, backend: "https://tms.example.com:9443/"}, {path: /web/, backend: https://web.example.com}]}]
  networkPolicies: {}
`)
	n := networkOf(t, top, objects)
	for _, c := range top.Running() {
		for _, port := range []int32{9443, 443} {
			require.Equal(t, c.Kind == topology.FrontProxy, n.lets("Egress", c, nil, port), "%s to port %d", c.ID(), port)
		}
	}
}

// A golden file shows the NetworkPolicies of each kind of component.
func TestNetworkPolicies(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  networkPolicies:
    clients: {kcp: provider}
    metricsClients: {kubernetes.io/metadata.name: monitoring}
  cacheServer: {}
  shards: [{name: alpha}]
  virtualWorkspaces: [{name: alpha, shard: alpha}]
  kubeconfigs: [{name: admin, target: {frontProxy: main}, user: admin, groups: [system:kcp:admin]}]
`)
	var text []byte
	for _, o := range objects {
		if o.GetKind() == "NetworkPolicy" {
			require.NoError(t, render.Strict(o))
			y, err := o.YAML()
			require.NoError(t, err)
			text = append(append(text, "---\n"...), y...)
		}
	}
	testutil.Golden(t, "networkpolicies.yaml", text)
}

// An imported shard keeps its address at kcp-operator's Service, which does not lead out of the cluster: only the
// components that use the shard can dial it, and until import --finish the pods of kcp-operator, at that Service.
func TestNetworkPoliciesOfAliases(t *testing.T) {
	top, _, objects := rendered(t, `spec:
  networkPolicies: {}
  shards:
  - {name: alpha, url: "https://alpha-shard-kcp.kcp.svc.cluster.local:6443", aliases: [alpha-shard-kcp]}
  - {name: beta, url: "https://other-kcp.kcp.svc.cluster.local:6443", aliases: [beta-shard-kcp]}
  - {name: gamma, url: "https://gamma-shard-kcp.kcp:6443", aliases: [gamma-shard-kcp], service: {type: LoadBalancer}}
`)
	n := networkOf(t, top, objects)
	alpha, beta, gamma := top.Component("shard/alpha"), top.Component("shard/beta"), top.Component("shard/gamma")
	require.False(t, n.lets("Ingress", alpha, nil, alpha.Port))
	require.True(t, n.lets("Ingress", alpha, top.FrontProxies()[0], alpha.Port))
	require.True(t, n.lets("Ingress", beta, nil, beta.Port), "other Services may lead anywhere")
	require.True(t, n.lets("Ingress", gamma, nil, gamma.Port), "the load balancer leads to it")
	rules, err := json.Marshal(n.policies[alpha.ID()]["ingress"])
	require.NoError(t, err)
	require.Contains(t, string(rules), `{"from":[{"podSelector":{"matchLabels":{"app.kubernetes.io/managed-by":"kcp-operator"}}}],`+
		`"ports":[{"port":6443,"protocol":"TCP"}]}`)
}

// Without the field there is no NetworkPolicy.
func TestNoNetworkPolicies(t *testing.T) {
	_, _, objects := rendered(t, "spec: {shards: [{name: alpha}]}")
	for _, o := range objects {
		require.NotEqual(t, "NetworkPolicy", o.GetKind())
	}
}

// A new shard does not change the NetworkPolicies of the other components: up --only shard/NAME is enough.
func TestNetworkPoliciesStayWithANewShard(t *testing.T) {
	policies := func(shards string) map[topology.ID]map[string]any {
		top, _, objects := rendered(t, "spec:\n  shards: "+shards+"\n  networkPolicies: {}\n")
		return networkOf(t, top, objects).policies
	}
	for before, after := range map[string]string{"[]": "[{name: alpha}]", "[{name: alpha}]": "[{name: alpha}, {name: beta}]"} {
		was, is := policies(before), policies(after)
		require.Subset(t, is, was)
		require.Len(t, is, len(was)+2)
	}
}
