package render

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// dnsPorts are the ports of DNS servers: of the Service, and of the pods behind it on OpenShift.
var dnsPorts = []int32{53, 5353}

// networkPolicy holds the values of the template of a NetworkPolicy.
type networkPolicy struct {
	Name, Namespace  string
	Labels, Selector map[string]string
	Types            []string
	Ingress          []dict
	Egress           any
}

// network adds the NetworkPolicy of a component, if the setup has NetworkPolicies.
func (b *objects) network() {
	spec := b.r.t.Setup.Spec.NetworkPolicies
	if spec == nil || b.c.Cluster.Local {
		return
	}
	p := networkPolicy{
		Name: b.c.Object(), Namespace: b.c.Cluster.Namespace, Labels: b.c.Labels(), Selector: b.c.Selector(),
		Types: []string{"Ingress"}, Ingress: ingress(b.r.network(), b.c, spec),
	}
	if !b.c.Kind.UsesClusters() {
		p.Types = append(p.Types, "Egress")
		p.Egress = egress(b.r.network(), b.c)
	}
	b.add(networkPolicyTemplate, p)
}

// ingress are the rules for clients of kcp.
func ingress(n *topology.Network, c *topology.Component, spec *v1alpha1.NetworkPolicies) []dict {
	if n.Public(c) {
		return []dict{{"ports": tcp(c.Port)}}
	}
	rules := []dict{} // without a rule, nothing can dial the pods
	for _, f := range n.Incoming(c) {
		rules = append(rules, dict{"from": peers(f.Peers), "ports": tcp(f.Ports...)})
	}
	if len(spec.Clients) > 0 && (c.IsShard() || c.Kind == topology.VirtualWorkspaces) {
		rules = append(rules, dict{"from": namespaces(spec.Clients), "ports": tcp(c.Port)})
	}
	if len(c.Aliases) > 0 { // the pods of kcp-operator dial them, until kcpctl import --finish
		rules = append(rules, dict{"from": []dict{pods(operator.Labels())}, "ports": tcp(c.Port)})
	}
	if len(spec.MetricsClients) > 0 {
		rules = append(rules, dict{"from": namespaces(spec.MetricsClients), "ports": tcp(c.MetricsPort())})
	}
	return rules
}

// egress are the rules for DNS and for the servers that a component dials.
func egress(n *topology.Network, c *topology.Component) []dict {
	rules := []dict{{"ports": append(ports("UDP", dnsPorts...), tcp(dnsPorts...)...)}}
	for _, f := range n.Outgoing(c) {
		rules = append(rules, dict{"to": peers(f.Peers), "ports": tcp(f.Ports...)})
	}
	if elsewhere := n.Elsewhere(c); len(elsewhere) > 0 {
		rules = append(rules, dict{"ports": tcp(elsewhere...)})
	}
	return rules
}

// peers returns the peers of a rule. Pods of other namespaces need another peer.
func peers(all []topology.Peer) []dict {
	var out []dict
	for _, p := range all {
		out = append(out, pods(p.Labels))
		if len(p.Namespaces) > 0 {
			elsewhere := pods(p.Labels)
			elsewhere["namespaceSelector"] = dict{"matchExpressions": []dict{
				{"key": corev1.LabelMetadataName, "operator": metav1.LabelSelectorOpIn, "values": p.Namespaces},
			}}
			out = append(out, elsewhere)
		}
	}
	return out
}

func pods(labels map[string]string) dict { return dict{"podSelector": dict{"matchLabels": labels}} }

func namespaces(labels map[string]string) []dict {
	return []dict{{"namespaceSelector": dict{"matchLabels": labels}}}
}

func tcp(numbers ...int32) []dict { return ports("TCP", numbers...) }

func ports(protocol string, numbers ...int32) []dict {
	var out []dict
	for _, n := range numbers {
		out = append(out, dict{"protocol": protocol, "port": n})
	}
	return out
}
