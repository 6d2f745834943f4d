package check

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// deploymentKind is the kind of the workload of an agent.
var deploymentKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}

// awayFromKeys looks for agents and syncers that can read the keys of the certificate authorities on their cluster, or
// overwrite them.
func awayFromKeys(ctx context.Context, s *Subject) (o outcome) {
	if s.Topology.Setup.Spec.PKI.Store != v1alpha1.PKIStoreCluster || len(s.facts.Clusters) == 0 {
		return skipped("the keys of kcp are not on a cluster")
	}
	for _, c := range s.agents() {
		if !s.lost(c.Cluster.Name) {
			o.absorb("", s.besideKeys(ctx, c))
		}
	}
	w := s.Topology.Setup.Spec.Workloads
	home := s.Topology.Home
	if w == nil {
		return o
	}
	for _, p := range w.Clusters {
		if p.SyncMode == v1alpha1.SyncModePull && p.Cluster == "" && p.Context == home.Context &&
			p.Kubeconfig == home.Kubeconfig {
			o.warn("the syncer of cluster %s may read all Secrets of the Kubernetes cluster, also those with the "+
				"private keys of kcp in namespace %s",
				p.Name, home.Namespace)
		}
	}
	return o
}

// besideKeys warns of an agent, or fails for a new one, that is in the namespace of the keys, or on their Kubernetes
// cluster.
func (s *Subject) besideKeys(ctx context.Context, c *topology.Component) (o outcome) {
	home := s.Topology.Home
	switch {
	case !c.Cluster.SameServer(home):
	case c.Cluster.Namespace != home.Namespace:
		o.warn("%s may read all Secrets of the Kubernetes cluster, also those with the private keys of kcp in "+
			"namespace %s", c.ID(), home.Namespace)
	default:
		live, err := s.Runtime.Read(ctx, c, deploymentKind, c.Cluster.Namespace, c.Object())
		switch {
		case err != nil:
			o.add(err)
		case live == nil:
			o.fail("%s would run in namespace %s, and could read and overwrite the private keys of kcp there",
				c.ID(), home.Namespace)
		default:
			o.warn("%s runs in namespace %s, and may read and overwrite the private keys of kcp there",
				c.ID(), home.Namespace)
		}
	}
	return o
}
