package setup

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// placement checks that a component which is dialled from another cluster has a URL: within its own cluster a
// component is reached by its Service, from elsewhere by its URL.
func (v *validator) placement() {
	if slices.ContainsFunc(v.parts, func(p part) bool { return !slices.Contains(v.clusterNames(), p.Cluster) }) {
		return // unknown clusters are reported already
	}
	for _, p := range v.parts {
		if p.kind == topology.FrontProxy || p.url != "" {
			continue
		}
		if client := v.remoteClient(p); client != "" {
			v.unplaced(p.path.Child("url"), "%s is on another cluster and dials it", client)
		}
	}
	v.externalHostname()
}

// originPlacement marks fields that are required only because of the placement of components.
const originPlacement = "placement"

func (v *validator) unplaced(p *field.Path, format string, args ...any) {
	v.required(p, format, args...)
	v.errs[len(v.errs)-1].Origin = originPlacement
}

// remoteClient returns a component on another cluster that dials p. It is empty if no component does.
func (v *validator) remoteClient(p part) topology.ID {
	for _, q := range v.parts {
		if q.Cluster != p.Cluster && q.inTopology().Dials(p.inTopology()) {
			return q.id()
		}
	}
	return ""
}

// externalHostname is required if a component that dials a front-proxy has none on its cluster.
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
		if p.kind.Dials(topology.FrontProxy) && !served[p.Cluster] {
			v.unplaced(field.NewPath("spec", "external", "hostname"),
				"%s has no front-proxy on its cluster and dials the first one from outside", p.id())
			return
		}
	}
}
