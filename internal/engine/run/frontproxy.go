package run

import (
	"time"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// FlagForgetCluster is the flag that forgets clusters which are lost for good.
const FlagForgetCluster = "forget-cluster"

// FrontProxy returns the front-proxy through which kcp is queried while some clusters are left out, or nil.
func FrontProxy(t *topology.Topology, left []plan.Unreachable) *topology.Component {
	for _, c := range append([]*topology.Component{t.OwnFrontProxy()}, t.FrontProxies()...) {
		if _, lost := plan.UnreachableIn(left, c.Cluster.Name); !lost && c.AcceptsClientCertificates() {
			return c
		}
	}
	return nil
}

// ConnectFrontProxy returns a client of that front-proxy. It sends no request.
func ConnectFrontProxy(d kcp.Dialer, t *topology.Topology, left []plan.Unreachable, state *pki.State,
	now time.Time) (*kcp.Client, error) {
	through := FrontProxy(t, left)
	if through == nil {
		return nil, clierr.New(clierr.Failed, "make one of the clusters with front-proxies reachable",
			"no front-proxy that accepts client certificates can be reached")
	}
	return kcp.Connect(d, through, state, now)
}
