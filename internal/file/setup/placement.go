package setup

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// placement is where the components of a setup run, and where those run that dial them.
type placement struct{ *validator }

// check requires that a component which is dialled from another cluster has a URL: within its own cluster a component
// is reached by its Service, from elsewhere by its URL.
func (v placement) check() {
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
	v.servedToTenants()
	v.externalHostname()
}

// servedToTenants requires that an agent or the controller of workloads on another cluster reaches the virtual
// workspaces of all shards: it dials the URL of every shard in an APIExportEndpointSlice, and front-proxies do not
// forward these requests.
func (v placement) servedToTenants() {
	separate := map[string]bool{}
	for _, s := range v.setup.Spec.VirtualWorkspaces {
		if !s.Custom() {
			separate[s.Shard] = true
		}
	}
	for _, p := range v.parts {
		shard := p.kind.IsShard() && !separate[p.id().ShortName()]
		serves := shard || p.kind == topology.VirtualWorkspaces && p.custom == nil
		if !serves || p.url != "" || p.virtualWorkspaceURL != "" {
			continue
		}
		tenants := v.tenants()
		i := slices.IndexFunc(tenants, func(q part) bool { return q.Cluster != p.Cluster && !v.beside(q, p.Cluster) })
		if i < 0 {
			continue
		}
		at := p.path.Child("url")
		if shard {
			at = p.path.Child("virtualWorkspaceURL")
		}
		v.unplaced(at, "%s is on another cluster and dials its virtual workspaces%s", tenants[i].id(),
			explained(tenants[i].kind))
	}
}

// beside reports whether an agent is in another namespace of the Kubernetes cluster on which a server is: names of
// Services lead there, too.
func (v placement) beside(p part, server string) bool {
	if p.kind != topology.Agent {
		return false
	}
	var of []v1alpha1.Cluster
	for _, c := range v.setup.Spec.Clusters {
		if c.Name == p.Cluster || c.Name == server {
			of = append(of, c)
		}
	}
	return len(of) == 2 && of[0].Context == of[1].Context && of[0].Kubeconfig == of[1].Kubeconfig
}

// explained refers to the check of the addresses that clients of a kind dial on other clusters.
func explained(client topology.Kind) string {
	switch client {
	case topology.Agent:
		return " (kcpctl explain KCP043)"
	case topology.Physical:
		return " (kcpctl explain KCP052)"
	}
	return ""
}

// tenants returns the agents, the controller of workloads and the syncers, except on unknown clusters, which are
// reported already.
func (v placement) tenants() []part {
	var out []part
	known := v.clusterNames()
	add := func(k topology.Kind, name, cluster string) {
		if cluster == "" || slices.Contains(known, cluster) { // a syncer without a cluster has its own place
			place := v1alpha1.Component{Cluster: cmp.Or(cluster, name)}
			out = append(out, part{kind: k, name: name, Component: &place})
		}
	}
	for _, a := range v.setup.Spec.Agents {
		add(topology.Agent, a.Name, a.Cluster)
	}
	w := v.setup.Spec.Workloads
	if w == nil {
		return out
	}
	add(topology.Workloads, topology.ControllerName, w.Cluster)
	for _, c := range w.Clusters {
		if c.SyncMode == v1alpha1.SyncModePull {
			add(topology.Physical, c.Name, c.Cluster)
		}
	}
	return out
}

// dialers returns the components that dial others, with the tenants.
func (v placement) dialers() []part { return append(slices.Clone(v.parts), v.tenants()...) }

// remoteClient returns a component on another cluster that dials p. It is empty if no component does.
func (v placement) remoteClient(p part) topology.ID {
	for _, q := range v.parts {
		if q.Cluster != p.Cluster && q.inTopology().Dials(p.inTopology()) {
			return q.id()
		}
	}
	return ""
}

// externalHostname is required if a component dials a front-proxy on another cluster.
func (v placement) externalHostname() {
	choices := frontProxyChoices(&v.setup.Spec)
	for _, p := range v.dialers() {
		if !p.kind.Dials(topology.FrontProxy) {
			continue
		}
		i := topology.ChooseFrontProxy(choices, p.frontProxy, p.Cluster)
		named := v.setup.Spec.FrontProxies[i].External.Hostname != "" || i == 0 && v.setup.Spec.External.Hostname != ""
		if choices[i].Cluster == p.Cluster || named || v.beside(p, choices[i].Cluster) {
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
func frontProxyChoices(spec *v1alpha1.Spec) []topology.FrontProxyChoice {
	var out []topology.FrontProxyChoice
	for i := range spec.FrontProxies {
		f := &spec.FrontProxies[i]
		a := topology.FrontProxyAuthentication(spec.Authentication, f.Authentication)
		out = append(out, topology.FrontProxyChoice{Name: f.Name, Cluster: f.Cluster,
			ClientCertificates: a.ClientCertificates})
	}
	return out
}
