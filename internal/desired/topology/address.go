package topology

import (
	"cmp"
	"net"
	"net/url"
	"strconv"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Address is the address that a cluster has assigned to a component that is exposed: the host of its load balancer or
// of a node, and its node port. Unknown parts are empty.
type Address struct {
	Host string `json:"host,omitempty"`
	Port int32  `json:"port,omitempty"`
}

// Addresses are assigned addresses by component.
type Addresses map[ID]Address

// pendingHost stands for the host of an address that is not assigned yet. It never resolves (RFC 6761).
const pendingHost = "not-assigned.invalid"

// Assignment says which parts of a component's address are assigned by its cluster, and has their known values.
type Assignment struct {
	Host, Port bool
	Known      Address
}

// Pending reports whether a part of the address is not known.
func (a Assignment) Pending() bool {
	return a.Host && a.Known.Host == "" || a.Port && a.Known.Port == 0
}

// Assigned returns the components whose clusters assign their addresses, or parts of them.
func (t *Topology) Assigned() []*Component {
	var out []*Component
	for _, c := range t.Servers() {
		if c.Assignment.Host || c.Assignment.Port {
			out = append(out, c)
		}
	}
	return out
}

// Pending returns the components whose addresses are not known. Their URLs have a host that stands for the address.
func (t *Topology) Pending() []*Component {
	var out []*Component
	for _, c := range t.Assigned() {
		if c.Assignment.Pending() {
			out = append(out, c)
		}
	}
	return out
}

// assigned completes an address with the parts that the cluster of a component has assigned. Host may be
// v1alpha1.AddressAuto, and port 0.
func (b *builder) assigned(c *Component, e v1alpha1.Expose, host string, port int32) (string, int32) {
	a := &c.Assignment
	a.Known = b.known[c.ID()]
	a.Host = host == v1alpha1.AddressAuto
	a.Port = port == 0 && e.Type == v1alpha1.ExposeNodePort
	if a.Host {
		host = cmp.Or(a.Known.Host, pendingHost)
	}
	if a.Port {
		port = a.Known.Port
	}
	return host, cmp.Or(port, Port)
}

// assignedURL does the same for a URL.
func (b *builder) assignedURL(c *Component, e v1alpha1.Expose, rawURL string) string {
	host := v1alpha1.AddressAuto
	port := e.NodePort
	if rawURL != v1alpha1.AddressAuto {
		u, err := url.Parse(rawURL)
		if err != nil || rawURL == "" || u.Port() != "" || e.Type != v1alpha1.ExposeNodePort || e.NodePort != 0 {
			return rawURL
		}
		host = u.Hostname()
	}
	return httpsURL(b.assigned(c, e, host, port))
}

// String returns host and port, as far as they are known.
func (a Address) String() string {
	switch {
	case a.Port == 0:
		return a.Host
	case a.Host == "":
		return "port " + strconv.Itoa(int(a.Port))
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
}
