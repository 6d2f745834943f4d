package setup

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
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

// externalHostname is required if a component dials a front-proxy on another cluster.
func (v *validator) externalHostname() {
	choices := v.frontProxyChoices()
	for _, p := range v.parts {
		if !p.kind.Dials(topology.FrontProxy) {
			continue
		}
		i := topology.ChooseFrontProxy(choices, p.frontProxy, p.Cluster)
		named := v.setup.Spec.FrontProxies[i].External.Hostname != "" || i == 0 && v.setup.Spec.External.Hostname != ""
		if choices[i].Cluster == p.Cluster || named {
			continue
		}
		at, which := field.NewPath("spec", "external", "hostname"), "the first one"
		if i > 0 {
			at, which = field.NewPath("spec", "frontProxies").Index(i).Child("external", "hostname"), choices[i].Name
		}
		v.unplaced(at, "%s has no front-proxy on its cluster and dials %s from outside", p.id(), which)
		return
	}
}

// frontProxyChoices are the front-proxies that components may dial.
func (v *validator) frontProxyChoices() []topology.FrontProxyChoice {
	return frontProxyChoices(&v.setup.Spec)
}

func frontProxyChoices(spec *v1alpha1.Spec) []topology.FrontProxyChoice {
	var out []topology.FrontProxyChoice
	for i := range spec.FrontProxies {
		f := &spec.FrontProxies[i]
		a := topology.FrontProxyAuthentication(spec.Authentication, f.Authentication)
		out = append(out, topology.FrontProxyChoice{Name: f.Name, Cluster: f.Cluster, ClientCertificates: a.ClientCertificates})
	}
	return out
}
