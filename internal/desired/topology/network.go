package topology

import (
	"cmp"
	"net"
	"slices"
	"strconv"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Network tells which traffic the components of a setup need, for their NetworkPolicies. It is read from the table of
// connections, by kinds: it does not change when a shard or a front-proxy is added.
type Network struct {
	t      *Topology
	remote []*RemoteAddress
	// places are all places that the setup file has, also those without components: one that gets its first component
	// changes no other.
	places []Cluster
	// inAgents are the kinds with components in AgentsNamespace.
	inAgents map[Kind]bool
}

// NewNetwork returns the network of a setup.
func NewNetwork(t *Topology) *Network {
	n := &Network{
		t: t, remote: t.RemoteAddresses(), places: slices.Clone(t.Clusters), inAgents: map[Kind]bool{Agent: true},
	}
	for _, c := range t.Setup.Spec.Clusters {
		n.places = append(n.places, Cluster{Context: c.Context, Kubeconfig: c.Kubeconfig, Namespace: c.Namespace})
	}
	// An agent that is added without a place gets this namespace, and that must not change the servers.
	n.places = append(n.places, Cluster{
		Context: t.Home.Context, Kubeconfig: t.Home.Kubeconfig, Namespace: AgentsNamespace(t.Name),
	})
	for _, c := range t.Running() {
		if c.Cluster.Namespace == AgentsNamespace(t.Name) {
			n.inAgents[c.Kind] = true
		}
	}
	return n
}

// Flow is traffic between a component and pods of the same Kubernetes cluster. Ports are the ports of the servers.
type Flow struct {
	Peers []Peer
	Ports []int32
}

// Peer is the pods with some labels: in the namespace of the component, and in other Namespaces.
type Peer struct {
	Labels     map[string]string
	Namespaces []string
}

// Incoming returns the traffic of the clients of a component.
func (n *Network) Incoming(c *Component) []Flow {
	var out []Flow
	beside := n.beside(c)
	for _, k := range Kinds() {
		if k.Runs() && k.Dials(c.Kind) {
			namespaces := slices.DeleteFunc(slices.Clone(beside),
				func(namespace string) bool { return namespace == AgentsNamespace(n.t.Name) && !n.inAgents[k] })
			out = n.add(out, c, k, ports(c.Kind, k), namespaces)
		}
	}
	return out
}

// beside returns the other namespaces of the setup in the Kubernetes cluster of a server: names of Services lead from
// there to the server, too.
func (n *Network) beside(c *Component) []string {
	if c.Kind == Etcd { // its clients are in its own namespace
		return nil
	}
	var out []string
	for _, cl := range n.places {
		if cl.SameServer(c.Cluster) {
			out = append(out, cl.Namespace)
		}
	}
	for _, a := range n.remote { // two contexts can be for one cluster
		if a.Server == c.ID() && hostOf(a.URL) == c.Host() {
			out = append(out, a.From.Namespace)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return slices.DeleteFunc(out, func(namespace string) bool { return namespace == c.Cluster.Namespace })
}

// Outgoing returns the traffic to the servers of a component.
func (n *Network) Outgoing(c *Component) []Flow {
	var out []Flow
	for _, k := range Kinds() {
		// A first shard changes nothing, either.
		if c.Kind.Dials(k) && (k == Shard || len(n.t.OfKind(k)) > 0) {
			out = n.add(out, c, k, ports(k, c.Kind), nil) // Elsewhere has the ports in other namespaces
		}
	}
	return out
}

// add adds the traffic between c and pods of a kind, which can be in other namespaces, too.
func (n *Network) add(flows []Flow, c *Component, k Kind, ports []int32, namespaces []string) []Flow {
	peer := Peer{n.peers(c, k), namespaces}
	if peer.Labels == nil {
		return flows
	}
	for i := range flows {
		if slices.Equal(flows[i].Ports, ports) {
			flows[i].Peers = append(flows[i].Peers, peer)
			return flows
		}
	}
	return append(flows, Flow{[]Peer{peer}, ports})
}

// peers returns the labels of the pods of a kind that dial c, or that c dials. An etcd has one client, and its members.
// It returns nil if there are none.
func (n *Network) peers(c *Component, k Kind) map[string]string {
	switch {
	case c.Kind == Etcd && k == Etcd:
		return c.Selector()
	case k == Etcd:
		if etcd := n.t.byID[managedEtcd(c)]; etcd != nil {
			return etcd.Selector()
		}
		return nil
	case c.Kind == Etcd:
		for _, owner := range n.t.OfKind(k) {
			if managedEtcd(owner) == c.ID() {
				return owner.Selector()
			}
		}
		return nil
	}
	return map[string]string{LabelSetup: c.Setup, LabelComponent: string(k)}
}

// ports returns the ports of pods of a kind that clients of another kind dial.
func ports(server, client Kind) []int32 {
	switch {
	case server != Etcd:
		return []int32{Port}
	case client == Etcd:
		return []int32{etcdPort, etcdPeerPort}
	}
	return []int32{etcdPort}
}

// Public reports whether clients from outside of its namespace dial a component: it is a front-proxy, it is exposed,
// its address is none of its Services, or a kubeconfig is for it.
func (n *Network) Public(c *Component) bool {
	if c.Kind == FrontProxy || c.Expose.Type != "" && c.Expose.Type != v1alpha1.ExposeClusterIP || c.opened() {
		return true
	}
	own := append(c.aliasHosts(), c.Host())
	for _, url := range []string{c.URL, c.ownVirtualWorkspaceURL()} {
		if host := hostOf(url); c.Kind.Serves() && host != "" && !slices.Contains(own, host) {
			return true
		}
	}
	return slices.ContainsFunc(n.t.OfKind(Kubeconfig), func(k *Component) bool { return k.Access.Target == c.ID() })
}

// opened reports whether overlays open the Service of a component to clients outside of the cluster.
func (c *Component) opened() bool {
	ips := false
	for _, o := range c.Services {
		list, _ := o["externalIPs"].([]any)
		ips = ips || len(list) > 0
	}
	return ips || overlaid(c.Services, string(v1alpha1.ExposeClusterIP)) != string(v1alpha1.ExposeClusterIP)
}

// overlaid returns the type of a Service, which overlays can set. kind is the one without them.
func overlaid(overlays []v1alpha1.Overlay, kind any) any {
	for _, o := range overlays {
		kind = cmp.Or(o["type"], kind)
	}
	return kind
}

// HasLoadBalancer reports whether the Service of a component has the type LoadBalancer.
func (c *Component) HasLoadBalancer() bool {
	return overlaid(c.Services, string(c.Expose.Type)) == string(v1alpha1.ExposeLoadBalancer)
}

// Elsewhere returns the ports that a component dials outside of its namespace: of other clusters, of external etcds, of
// issuers and of the servers of path mappings. A load balancer can lead back into the cluster, to the port of a pod.
func (n *Network) Elsewhere(c *Component) []int32 {
	var out []int32
	for _, m := range c.PathMappings {
		if port := portOf(HostPort(m.Backend)); port != 0 {
			out = append(out, port)
		}
	}
	for _, a := range n.remote {
		if a.From.Name != c.Cluster.Name || a.purposes[c.Kind] == nil {
			continue
		}
		if port := portOf(a.Address); port != 0 {
			out = append(out, port)
		}
		if server := n.t.byID[a.Server]; a.External == "" && server != nil {
			out = append(out, server.Port)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func portOf(hostPort string) int32 {
	_, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// UsesClusters reports whether components of the kind use the API servers of Kubernetes clusters.
func (k Kind) UsesClusters() bool { return k.traits().clusters }
