package topology

import "slices"

const (
	// etcdMetricsPort is the port at which a managed etcd serves only metrics and its health, without TLS.
	etcdMetricsPort = 2381
	// localhost is a name in the certificates of all servers.
	localhost = "localhost"
)

// MetricsUser returns the common name of the certificate with which a Prometheus authenticates to kcp.
func MetricsUser(setup string) string { return "kcpctl:metrics:" + setup }

// monitoring adds what a Prometheus needs on each cluster with kcp servers.
func (b *builder) monitoring() {
	if !b.monitored() {
		return
	}
	for _, cl := range b.t.Clusters {
		if !slices.ContainsFunc(b.t.Servers(), func(c *Component) bool { return c.Cluster.Name == cl.Name }) {
			continue
		}
		c := &Component{Kind: Monitoring, Name: cl.Name, Setup: b.t.Name, Cluster: cl, Needs: []ID{IDOf(Base, cl.Name)}}
		if cl.Name == b.t.Home.Name {
			c.Needs = append(c.Needs, ID(RootShard), b.t.OwnFrontProxy().ID())
		}
		b.add(c)
	}
}

func (b *builder) monitored() bool { return b.local == nil && b.setup.Spec.Monitoring != nil }

// MetricsPort returns the port at which c serves its metrics.
func (c *Component) MetricsPort() int32 {
	if c.Kind == Etcd && c.Monitored {
		return etcdMetricsPort
	}
	return c.Port
}

// Scraped reports whether a Prometheus reads the metrics of c, if the setup has monitoring: c has pods, and lets the
// certificate of Prometheus read them.
func (c *Component) Scraped() bool {
	return c.Runs() && c.Replicas > 0 && c.Kind != VirtualWorkspaces && !c.refusesPrometheus()
}

// refusesPrometheus reports whether c is a front-proxy that only knows tokens.
func (c *Component) refusesPrometheus() bool {
	a := c.Authentication
	return c.Kind == FrontProxy && a != nil && !a.ClientCertificates && (a.Tokens() || a.ServiceAccounts)
}

// Unscraped returns the front-proxies that refuse the certificate of Prometheus.
func (t *Topology) Unscraped() []*Component {
	return slices.DeleteFunc(t.FrontProxies(), func(c *Component) bool { return !c.refusesPrometheus() })
}

// metricsHost is the name that a Prometheus expects in the certificate of a server. It dials pods by their addresses,
// and has one configuration for all of them, so it expects a name that all have: it knows that the server is one of the
// setup, and not which one.
func metricsHost(server, _ *Component) []Endpoint {
	if !server.AcceptsClientCertificates() {
		return nil
	}
	return []Endpoint{{Host: localhost}}
}
