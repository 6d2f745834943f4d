package topology

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// httpsPort is the port of an https URL without one.
const httpsPort = 443

// ServicePort returns the port of the Service of a server that clients outside its cluster dial at a public port. 0:
// they dial none. A load balancer listens on the ports of the Service, all others translate the port. Overlays of the
// Service may set its type instead. Without any type, the Service of a front-proxy has the public port.
func ServicePort(k Kind, t v1alpha1.ExposeType, overlays []v1alpha1.Overlay, public int32) int32 {
	asPublic := t == v1alpha1.ExposeLoadBalancer || overlaid(overlays, nil) == string(v1alpha1.ExposeLoadBalancer) ||
		k == FrontProxy && t == v1alpha1.ExposeClusterIP
	if public != 0 && asPublic {
		return public
	}
	return Port
}

// expose decides the ports of a component that is dialled from outside its cluster at a URL, which may be empty.
func (b *builder) expose(c *Component, e v1alpha1.Expose, url string) {
	if c.Cluster.Local {
		return
	}
	c.Expose = e
	public := PortOf(url)
	c.ServicePort = ServicePort(c.Kind, e.Type, c.Services, public)
	if e.Type == v1alpha1.ExposeNodePort {
		c.NodePort = cmp.Or(e.NodePort, public)
		if c.Assignment.Port {
			c.NodePort = c.Assignment.Known.Port
		}
	}
}

// PublicHosts returns the hosts at which clients outside the cluster dial c.
func (c *Component) PublicHosts() []string {
	var hosts []string
	for _, u := range c.URLs() {
		if h := hostOf(u); h != "" && h != c.Host() && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// PortOf returns the port that an https URL leads to. It is 0 for an invalid URL and for an empty one.
func PortOf(rawURL string) int32 {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return 0
	}
	if u.Port() == "" {
		return httpsPort
	}
	n, err := strconv.ParseInt(u.Port(), 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}
