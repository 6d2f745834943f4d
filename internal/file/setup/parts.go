package setup

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// part is a component and its path in the file.
type part struct {
	kind topology.Kind
	name string
	path *field.Path
	*v1alpha1.Component
	// etcd points to the component's etcd, and url is its URL. They are nil and empty if the kind has no etcd.
	etcd **v1alpha1.Etcd
	url  string
	// virtualWorkspaceURL is the URL of the virtual workspaces of a shard.
	virtualWorkspaceURL string
	// serves is the name of the shard that a server of virtual workspaces works for, and cached is set if there is a
	// cache server.
	serves string
	cached bool
	// external is the address of a front-proxy for clients, and externalPath its path. It is nil for other kinds.
	external     *v1alpha1.External
	externalPath *field.Path
	// frontProxy is the name of the front-proxy that it dials, if the setup file names one.
	frontProxy string
}

// parts returns the components of a setup, in the order in which they start. Kinds with at most one component have no
// names.
func parts(s *v1alpha1.Setup) []part {
	spec, path := &s.Spec, field.NewPath("spec")
	var out []part
	if c := spec.CacheServer; c != nil {
		out = append(out, part{kind: topology.CacheServer, path: path.Child("cacheServer"), Component: &c.Component,
			etcd: &c.Etcd, url: c.URL})
	}
	root := &spec.RootShard
	out = append(out, part{
		kind: topology.RootShard, path: path.Child("rootShard"), Component: &root.Component, etcd: &root.Etcd,
		url: root.URL, virtualWorkspaceURL: root.VirtualWorkspaceURL,
		frontProxy: root.FrontProxy,
	})
	for i := range spec.Shards {
		c := &spec.Shards[i]
		out = append(out, part{
			kind: topology.Shard, name: c.Name, path: path.Child("shards").Index(i),
			Component: &c.Component, etcd: &c.Etcd, url: c.URL, virtualWorkspaceURL: c.VirtualWorkspaceURL,
			frontProxy: c.FrontProxy,
		})
	}
	for i := range spec.FrontProxies {
		c := &spec.FrontProxies[i]
		p := part{kind: topology.FrontProxy, name: c.Name, path: path.Child("frontProxies").Index(i),
			Component: &c.Component}
		p.external, p.externalPath = &c.External, p.path.Child("external")
		if i == 0 && c.External.Hostname == "" {
			p.external, p.externalPath = &spec.External, path.Child("external")
		}
		out = append(out, p)
	}
	for i := range spec.VirtualWorkspaces {
		c := &spec.VirtualWorkspaces[i]
		out = append(out, part{
			kind: topology.VirtualWorkspaces, name: c.Name, path: path.Child("virtualWorkspaces").Index(i),
			Component: &c.Component, url: c.URL, serves: c.Shard, cached: spec.CacheServer != nil,
			frontProxy: c.FrontProxy,
		})
	}
	return out
}

// id returns the ID that the component will have.
func (p part) id() topology.ID { return topology.IDOf(p.kind, p.name) }

// inTopology returns the fields of the component that determine which others it dials.
func (p part) inTopology() *topology.Component {
	return &topology.Component{Kind: p.kind, Name: p.name, Serves: topology.ShardID(p.serves), CacheServer: p.cached}
}

func metadataName() *field.Path { return field.NewPath("metadata", "name") }

// namePath is the field that determines the names of p's objects: its name, or the name of the setup.
func (p part) namePath() *field.Path {
	if p.kind.Singleton() {
		return metadataName()
	}
	return p.path.Child("name")
}
