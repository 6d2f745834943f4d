package setup

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// part is a component of a setup and where it stands in the file.
type part struct {
	kind topology.Kind
	name string
	path *field.Path
	*v1alpha1.Component
	// etcd is where the component's etcd is, and url its URL, if its kind has them.
	etcd **v1alpha1.Etcd
	url  string
}

// parts returns the components that a setup lists, in the order in which they come up. Their names are empty where a setup
// has at most one.
func parts(s *v1alpha1.Setup) []part {
	spec, path := &s.Spec, field.NewPath("spec")
	var out []part
	if c := spec.CacheServer; c != nil {
		out = append(out, part{topology.CacheServer, "", path.Child("cacheServer"), &c.Component, &c.Etcd, c.URL})
	}
	root := &spec.RootShard
	out = append(out, part{topology.RootShard, "", path.Child("rootShard"), &root.Component, &root.Etcd, root.URL})
	for i := range spec.Shards {
		c := &spec.Shards[i]
		out = append(out, part{topology.Shard, c.Name, path.Child("shards").Index(i), &c.Component, &c.Etcd, c.URL})
	}
	for i := range spec.FrontProxies {
		c := &spec.FrontProxies[i]
		out = append(out, part{topology.FrontProxy, c.Name, path.Child("frontProxies").Index(i), &c.Component, nil, ""})
	}
	for i := range spec.VirtualWorkspaces {
		c := &spec.VirtualWorkspaces[i]
		out = append(out, part{topology.VirtualWorkspaces, c.Name, path.Child("virtualWorkspaces").Index(i), &c.Component, nil, c.URL})
	}
	return out
}

// shardName is a shard's name in kcp; for a cache server the word that stands for it.
func (p part) shardName() string {
	switch p.kind {
	case topology.RootShard:
		return topology.RootShardName
	case topology.CacheServer:
		return topology.CacheName
	}
	return p.name
}

// isShard tells whether p is the root shard or another shard.
func (p part) isShard() bool { return p.kind == topology.RootShard || p.kind == topology.Shard }

// single tells whether a setup has at most one component of this kind, which then has no name of its own.
func (p part) single() bool { return p.kind == topology.RootShard || p.kind == topology.CacheServer }

func metadataName() *field.Path { return field.NewPath("metadata", "name") }

// namePath is the field that decides what the objects of p are called: its name, or the setup's.
func (p part) namePath() *field.Path {
	if p.single() {
		return metadataName()
	}
	return p.path.Child("name")
}
