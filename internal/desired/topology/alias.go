package topology

import "slices"

// IsAlias reports whether an object of c is one of its additional Services.
func (c *Component) IsAlias(kind, name string) bool {
	return kind == "Service" && slices.Contains(c.Aliases, name)
}

// aliasHosts returns the DNS names of the additional Services.
func (c *Component) aliasHosts() []string {
	var hosts []string
	for _, a := range c.Aliases {
		ns := a + "." + c.Cluster.Namespace
		hosts = append(hosts, a, ns, ns+".svc", ns+".svc."+c.Cluster.Domain)
	}
	return hosts
}
