package setup

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// placement checks that what is dialled from another cluster has an address that can be dialled from there: within its own
// cluster a component is reached by its Service, elsewhere by its URL.
func (v *validator) placement() {
	if slices.ContainsFunc(v.parts, func(p part) bool { return !slices.Contains(v.clusterNames(), p.Cluster) }) {
		return // it is unknown who is where
	}
	for _, p := range v.parts {
		if p.kind == topology.FrontProxy || p.url != "" {
			continue
		}
		if from := v.dialledFrom(p); from != "" {
			v.unplaced(p.path.Child("url"), "%s is on another cluster and dials it", from)
		}
	}
	v.externalHostname()
}

// originPlacement marks what is required only because of where components are.
const originPlacement = "placement"

func (v *validator) unplaced(p *field.Path, format string, args ...any) {
	v.required(p, format, args...)
	v.errs[len(v.errs)-1].Origin = originPlacement
}

// dialledFrom returns a component on another cluster that dials p, if there is one.
func (v *validator) dialledFrom(p part) topology.ID {
	for _, q := range v.parts {
		if q.Cluster != p.Cluster && dials(q.kind, p.kind) {
			return topology.IDOf(q.kind, q.name)
		}
	}
	return ""
}

// dials tells whether components of one kind dial those of another.
func dials(from, to topology.Kind) bool {
	shard := from == topology.RootShard || from == topology.Shard
	switch to {
	case topology.CacheServer:
		return shard || from == topology.VirtualWorkspaces
	case topology.RootShard:
		return shard || from == topology.FrontProxy || from == topology.VirtualWorkspaces
	case topology.Shard, topology.VirtualWorkspaces:
		return shard || from == topology.FrontProxy
	}
	return false
}

// externalHostname is required where a shard can dial no front-proxy within its cluster.
func (v *validator) externalHostname() {
	spec := v.setup.Spec
	if spec.External.Hostname != "" || spec.FrontProxies[0].External.Hostname != "" {
		return
	}
	served := map[string]bool{}
	for i := range spec.FrontProxies {
		served[spec.FrontProxies[i].Cluster] = true
	}
	for _, p := range v.parts {
		if (p.isShard() || p.kind == topology.VirtualWorkspaces) && !served[p.Cluster] {
			v.unplaced(field.NewPath("spec", "external", "hostname"), "%s has no front-proxy on its cluster and dials the first one from outside",
				topology.IDOf(p.kind, p.name))
			return
		}
	}
}
