package model_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// edit edits the setup file. Edits that make the file invalid are refused.
func (g *game) edit(who *operator) {
	s := who.setup()
	spec := &s.Spec
	edits := []struct {
		name string
		do   func()
	}{
		{"add a shard", func() {
			name := g.draw("name", "alpha", "beta")
			if !slices.ContainsFunc(spec.Shards, func(s v1alpha1.Shard) bool { return s.Name == name }) {
				spec.Shards = append(spec.Shards, shardOf(name, g.anyCluster(), etcdOf(g.draw("etcd", etcdKinds...))))
			}
		}},
		{"remove a shard", func() { g.shard(spec, func(i int) { spec.Shards = slices.Delete(spec.Shards, i, i+1) }) }},
		{"rename a shard", func() {
			g.shard(spec, func(i int) { spec.Shards[i].Name = g.draw("name", "alpha", "beta") })
		}},
		{"move a shard", func() { g.shard(spec, func(i int) { spec.Shards[i].Cluster = g.anyCluster() }) }},
		{"move the root shard", func() { spec.RootShard.Cluster = g.anyCluster() }},
		{"move a front-proxy", func() {
			for i := range spec.FrontProxies[:min(1, len(spec.FrontProxies))] {
				spec.FrontProxies[i].Cluster = g.anyCluster()
			}
		}},
		{"change a namespace", func() {
			g.clusterOf(spec, func(c *v1alpha1.Cluster) { c.Namespace = g.draw("namespace", "kcp", "other") })
		}},
		{"change the etcd of a shard", func() {
			g.shard(spec, func(i int) { spec.Shards[i].Etcd = etcdOf(g.draw("etcd", etcdKinds...)) })
		}},
		{"change the etcd of the root shard", func() { spec.RootShard.Etcd = etcdOf(g.draw("etcd", etcdKinds...)) }},
		{"change the cache server", func() {
			spec.CacheServer = nil
			if g.draw("cache server", "yes", "no") == "yes" {
				spec.CacheServer = &v1alpha1.CacheServer{Etcd: etcdOf(g.draw("etcd", etcdKinds...)), URL: urlOf(3)}
				spec.CacheServer.Cluster = g.anyCluster()
			}
		}},
		{"remove a cluster", func() {
			name := g.anyCluster()
			spec.Clusters = slices.DeleteFunc(spec.Clusters, func(c v1alpha1.Cluster) bool { return c.Context == name })
			spec.FrontProxies = slices.DeleteFunc(spec.FrontProxies, func(p v1alpha1.FrontProxy) bool { return p.Cluster == name })
		}},
		{"add a cluster", func() {
			name := g.anyCluster()
			if !slices.ContainsFunc(spec.Clusters, func(c v1alpha1.Cluster) bool { return c.Name == name }) {
				spec.Clusters = append(spec.Clusters, v1alpha1.Cluster{Name: name, Context: name, Namespace: "kcp"})
			}
		}},
		{"add a front-proxy", func() {
			p := v1alpha1.FrontProxy{Name: g.draw("front-proxy", proxyNames...)}
			p.Cluster = g.anyCluster()
			spec.FrontProxies = append(slices.DeleteFunc(spec.FrontProxies, func(o v1alpha1.FrontProxy) bool { return o.Name == p.Name }), p)
		}},
		{"remove a front-proxy", func() {
			if len(spec.FrontProxies) > 1 {
				spec.FrontProxies = spec.FrontProxies[:1]
			}
		}},
		{"change the version", func() { spec.Version = g.draw("version", "v0.32.3", "v0.31.2", "v0.30.0") }},
		{"change the log level", func() {
			level := int32(rapid.IntRange(1, 4).Draw(g.t, "level"))
			spec.Defaults.LogLevel = &level
		}},
		{"change the PKI store", func() {
			spec.PKI.Store = rapid.SampledFrom([]v1alpha1.PKIStore{v1alpha1.PKIStoreCluster, v1alpha1.PKIStoreDirectory}).Draw(g.t, "store")
		}},
		{"change the PKI directory", func() { spec.PKI.Directory = g.draw("directory", "", "pkii", "backup") }},
	}
	e := edits[rapid.IntRange(0, len(edits)-1).Draw(g.t, "edit")]
	e.do()
	who.save(s)
	g.logf("%s: %s: %s", who.name, e.name, jsonOf(s.Spec))
}

func (g *game) shard(spec *v1alpha1.Spec, do func(i int)) {
	if n := len(spec.Shards); n > 0 {
		do(rapid.IntRange(0, n-1).Draw(g.t, "shard"))
	}
}

func (g *game) clusterOf(spec *v1alpha1.Spec, do func(*v1alpha1.Cluster)) {
	if n := len(spec.Clusters); n > 0 {
		do(&spec.Clusters[rapid.IntRange(0, n-1).Draw(g.t, "which cluster")])
	}
}
