package setup

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// terminating are Ingress classes whose controllers cannot pass TLS through, so that client certificates would be lost.
var terminating = []string{"alb", "azure-application-gateway", "gce", "gce-internal", "traefik"}

type exposeFields struct{ *fields }

// exposed checks how components are reached from outside their clusters.
func (v *validator) exposed() {
	for _, p := range v.parts {
		at := p.path.Child("expose")
		oneOf(v.fields, at.Child("type"), p.Expose.Type, v1alpha1.ExposeTypes...)
		v.exposure(at, p.Expose)
		v.autoAddress(p)
		if p.Expose.Type != v1alpha1.ExposeClusterIP && slices.Contains(v1alpha1.ExposeTypes, p.Expose.Type) {
			v.exposedAddress(p)
		}
	}
	v.exposedTwice()
}

// exposure checks that the fields belong to the type.
func (v exposeFields) exposure(p *field.Path, e v1alpha1.Expose) {
	for _, f := range []struct {
		name string
		set  bool
		of   v1alpha1.ExposeType
	}{
		{"internal", e.Internal, v1alpha1.ExposeLoadBalancer},
		{"nodePort", e.NodePort != 0, v1alpha1.ExposeNodePort},
		{"className", e.ClassName != "", v1alpha1.ExposeIngress},
		{"gateway", e.Gateway != v1alpha1.Gateway{}, v1alpha1.ExposeTLSRoute},
	} {
		if f.set && e.Type != f.of {
			v.forbidden(p.Child(f.name), "only the type %s uses it", f.of)
		}
	}
	if e.NodePort != 0 {
		v.port(p.Child("nodePort"), e.NodePort)
	}
	v.annotationMap(p.Child("annotations"), e.Annotations)
	v.className(p.Child("className"), e.ClassName)
	if e.Type == v1alpha1.ExposeTLSRoute {
		v.gateway(p.Child("gateway"), e.Gateway)
	}
}

func (v exposeFields) className(p *field.Path, class string) {
	switch {
	case class == "":
	case slices.Contains(terminating, class):
		v.invalid(p, class, "its controller terminates TLS, and client certificates would be lost: use "+
			"the type %s or %s",
			v1alpha1.ExposeTLSRoute, v1alpha1.ExposeLoadBalancer)
	default:
		v.subdomain(p, class)
	}
}

func (v exposeFields) gateway(p *field.Path, g v1alpha1.Gateway) {
	if g.Name == "" {
		v.required(p.Child("name"), "the Gateway with a listener for TLS passthrough")
		return
	}
	v.subdomain(p.Child("name"), g.Name)
	if g.Namespace != "" {
		v.label(p.Child("namespace"), g.Namespace)
	}
	if g.SectionName != "" {
		v.subdomain(p.Child("sectionName"), g.SectionName)
	}
}

// exposedAddress checks the address of a component that is exposed.
func (v exposeFields) exposedAddress(p part) {
	at, host := p.addressPath(), p.publicHost()
	switch t := p.Expose.Type; {
	case host == "":
		v.required(at, "the address at which clients reach the %s of %s%s", t, p.id(), orAuto(t))
	case t.Routed() && net.ParseIP(host) != nil:
		v.invalid(at, host, "must be a DNS name: proxies route by the host name in the TLS handshake, which is "+
			"never an IP address")
	}
	if p.Expose.Type == v1alpha1.ExposeRoute && p.virtualWorkspaceURL != "" && hostOf(p.virtualWorkspaceURL) != host {
		v.invalid(p.path.Child("virtualWorkspaceURL"), p.virtualWorkspaceURL,
			"must have the host of the URL, because a Route has one host")
	}
}

// assigning are the types whose addresses clusters assign.
var assigning = []v1alpha1.ExposeType{v1alpha1.ExposeNodePort, v1alpha1.ExposeLoadBalancer}

func orAuto(t v1alpha1.ExposeType) string {
	if slices.Contains(assigning, t) {
		return fmt.Sprintf(", or %s for the one that the cluster assigns", v1alpha1.AddressAuto)
	}
	return ""
}

// autoAddress checks that a component whose cluster assigns the address has a type with one.
func (v exposeFields) autoAddress(p part) {
	if p.publicHost() == v1alpha1.AddressAuto && !slices.Contains(assigning, p.Expose.Type) {
		v.invalid(p.addressPath(), v1alpha1.AddressAuto, "only for components with expose: %s or %s",
			v1alpha1.ExposeNodePort, v1alpha1.ExposeLoadBalancer)
	}
}

// exposedTwice checks that no two components of a cluster are exposed at the same node port, or by the same host name.
func (v *validator) exposedTwice() {
	type address struct {
		context, kubeconfig string
		port                int32
		host                string
	}
	first := map[address]topology.ID{}
	for _, p := range v.parts {
		var taken address
		var what string
		switch t := p.Expose.Type; {
		case t == v1alpha1.ExposeNodePort:
			taken.port = p.nodePort()
			what = fmt.Sprintf("node port %d", taken.port)
		case t.Routed():
			taken.host = p.publicHost()
			what = "host name " + taken.host
		}
		cl, ok := v.clusterOf(p)
		if taken == (address{}) || !ok {
			continue
		}
		taken.context = cl.Context
		taken.kubeconfig = cl.Kubeconfig
		if other, found := first[taken]; found {
			v.forbidden(p.addressPath(), "%s on the same cluster has the %s too", other, what)
			continue
		}
		first[taken] = p.id()
	}
}

func (v *validator) clusterOf(p part) (v1alpha1.Cluster, bool) { return p.clusterOf(v.setup) }

func (p part) clusterOf(s *v1alpha1.Setup) (v1alpha1.Cluster, bool) {
	i := slices.IndexFunc(s.Spec.Clusters, func(c v1alpha1.Cluster) bool { return c.Name == p.Cluster })
	if i < 0 {
		return v1alpha1.Cluster{}, false
	}
	return s.Spec.Clusters[i], true
}

// openings returns the fields that let clients from outside of its cluster reach a component.
func (p part) openings(s *v1alpha1.Setup) (out []*field.Path) {
	for _, f := range []struct{ name, value string }{{"url", p.url}, {"virtualWorkspaceURL", p.virtualWorkspaceURL}} {
		if cl, _ := p.clusterOf(s); f.value != "" && !strings.HasSuffix(hostOf(f.value), ".svc."+cl.Domain) {
			out = append(out, p.path.Child(f.name))
		}
	}
	if p.Expose.Type != v1alpha1.ExposeClusterIP {
		out = append(out, p.path.Child("expose"))
	}
	overlays := []serviceOverlay{
		{p.path.Child("service"), p.Service},
		{field.NewPath("spec", "defaults", "service"), s.Spec.Defaults.Service},
	}
	i := slices.IndexFunc(overlays, func(o serviceOverlay) bool { return o.overlay["type"] != nil })
	if i >= 0 && overlays[i].overlay["type"] != string(v1alpha1.ExposeClusterIP) {
		out = append(out, overlays[i].path.Child("type"))
	}
	for _, o := range overlays {
		if ips, _ := o.overlay["externalIPs"].([]any); len(ips) > 0 {
			out = append(out, o.path.Child("externalIPs"))
		}
	}
	return out
}

// addressPath is the field with the address of the component for clients outside its cluster.
func (p part) addressPath() *field.Path {
	if p.external != nil {
		return p.externalPath.Child("hostname")
	}
	return p.path.Child("url")
}

// publicHost is the host of the component's address. It is empty without an address.
func (p part) publicHost() string {
	if p.external != nil {
		return p.external.Hostname
	}
	if p.url == v1alpha1.AddressAuto {
		return p.url
	}
	return hostOf(p.url)
}

// publicPort is the port of the component's address. It is 0 if there is none, or if the cluster assigns it.
func (p part) publicPort() int32 {
	switch {
	case p.external == nil && p.Expose.Type == v1alpha1.ExposeNodePort && !hasPort(p.url):
		return 0
	case p.external == nil:
		return topology.PortOf(p.url)
	case p.external.Hostname == "":
		return 0
	}
	return p.external.Port
}

// nodePort is the port of the nodes that leads to the component. It is 0 if it is not known.
func (p part) nodePort() int32 {
	if p.Expose.NodePort != 0 {
		return p.Expose.NodePort
	}
	return p.publicPort()
}

func hostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func hasPort(rawURL string) bool {
	u, err := url.Parse(rawURL)
	return err == nil && u.Port() != ""
}
