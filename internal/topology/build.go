package topology

import (
	"cmp"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Where pods find their configuration and data.
const (
	podConfigDir = "/etc/kcp"
	podDataDir   = "/var/lib/kcp"
	loopback     = "127.0.0.1"
	// anyAddress stands for all addresses of both families: Go listens on IPv6 too, and in pods that have no other.
	anyAddress   = "0.0.0.0"
	etcdPort     = 2379
	etcdPeerPort = 2380
)

// Build takes a setup apart for Kubernetes clusters. The setup is valid and has all its defaults.
func Build(s *v1alpha1.Setup) *Topology { return (&builder{setup: s}).build() }

type builder struct {
	setup *v1alpha1.Setup
	local *local
	t     *Topology
}

func (b *builder) build() *Topology {
	b.t = &Topology{Setup: b.setup, Name: b.setup.Metadata.Name, Local: b.local != nil, byID: map[ID]*Component{}}
	b.placeClusters()
	spec := &b.setup.Spec
	var cacheNeeds []ID
	if cs := spec.CacheServer; cs != nil {
		c := b.server(CacheServer, "", cs.Component, cs.URL)
		c.Storage = b.storage(c, CacheName, *cs.Etcd)
		b.add(c)
		cacheNeeds = []ID{c.ID()}
	}
	root := b.shard(RootShard, "", spec.RootShard.ShardSpec, cacheNeeds...)
	for i := range spec.Shards {
		b.shard(Shard, spec.Shards[i].Name, spec.Shards[i].ShardSpec, append(cacheNeeds, root.ID())...)
	}
	for i := range spec.FrontProxies {
		b.frontProxy(&spec.FrontProxies[i], i == 0, root.ID())
	}
	for i := range spec.VirtualWorkspaces {
		b.virtualWorkspaces(&spec.VirtualWorkspaces[i])
	}
	b.connectShards()
	for i := range spec.Kubeconfigs {
		b.kubeconfig(&spec.Kubeconfigs[i])
	}
	return b.t
}

func (b *builder) add(c *Component) {
	b.t.Components = append(b.t.Components, c)
	b.t.byID[c.ID()] = c
}

// placeClusters keeps the clusters that hold at least one component, and gives each its base.
func (b *builder) placeClusters() {
	if b.local != nil {
		b.t.Clusters = []Cluster{{}}
	}
	used := usedClusters(b.setup)
	for _, c := range b.setup.Spec.Clusters {
		if b.local == nil && used[c.Name] {
			b.t.Clusters = append(b.t.Clusters, Cluster(c))
		}
	}
	b.t.Home = b.cluster(b.setup.Spec.RootShard.Cluster)
	for _, c := range b.t.Clusters {
		b.add(&Component{Kind: Base, Name: c.Name, Setup: b.t.Name, Cluster: c})
	}
}

func usedClusters(s *v1alpha1.Setup) map[string]bool {
	used := map[string]bool{s.Spec.RootShard.Cluster: true}
	if s.Spec.CacheServer != nil {
		used[s.Spec.CacheServer.Cluster] = true
	}
	for i := range s.Spec.Shards {
		used[s.Spec.Shards[i].Cluster] = true
	}
	for i := range s.Spec.FrontProxies {
		used[s.Spec.FrontProxies[i].Cluster] = true
	}
	for i := range s.Spec.VirtualWorkspaces {
		used[s.Spec.VirtualWorkspaces[i].Cluster] = true
	}
	return used
}

func (b *builder) cluster(name string) Cluster {
	for _, c := range b.t.Clusters {
		if c.Name == name || b.local != nil {
			return c
		}
	}
	return b.t.Clusters[0]
}

// server is what all kcp servers have in common.
func (b *builder) server(k Kind, name string, spec v1alpha1.Component, url string) *Component {
	s := &b.setup.Spec
	img := mergeImage(s.Image, spec.Image)
	c := &Component{
		Kind: k, Name: name, Setup: b.t.Name, Cluster: b.cluster(spec.Cluster),
		Version: kcpVersion(img, s.Version), Image: imageRef(img, s.Version),
		PullPolicy: img.PullPolicy, PullSecrets: img.PullSecrets,
		Replicas: *spec.Replicas, LogLevel: *spec.LogLevel, Resources: *spec.Resources,
		ExtraArgs:    append(append([]string{}, s.Defaults.ExtraArgs...), spec.ExtraArgs...),
		PodTemplates: overlays(s.Defaults.PodTemplate, spec.PodTemplate),
		Services:     overlays(s.Defaults.Service, spec.Service),
	}
	c.Needs = []ID{IDOf(Base, c.Cluster.Name)}
	b.locate(c, Port, url)
	return c
}

// locate decides where a component listens, how it is reached and where its files are.
func (b *builder) locate(c *Component, port int32, url string) {
	if b.local != nil {
		dir := ComponentDir(b.local.dir, c.Object())
		c.BindAddress, c.Port, c.Replicas = loopback, b.port(string(c.ID())), 1
		c.ConfigDir, c.DataDir = filepath.Join(dir, "config"), filepath.Join(dir, "data")
		c.ServicePort, c.URL = c.Port, httpsURL(loopback, c.Port)
		return
	}
	c.BindAddress, c.Port, c.ServicePort = anyAddress, port, port
	c.ConfigDir, c.DataDir = podConfigDir, podDataDir
	c.URL = cmp.Or(url, httpsURL(c.Host(), port))
}

// URLFrom is how a component on some cluster dials c: by its Service within one cluster, else by its URL.
func (c *Component) URLFrom(from Cluster) string {
	if c.Cluster.Namespace == "" || from.Name != c.Cluster.Name {
		return c.URL
	}
	return httpsURL(c.Host(), c.ServicePort)
}

func (b *builder) shard(k Kind, name string, spec v1alpha1.ShardSpec, needs ...ID) *Component {
	c := b.server(k, name, spec.Component, spec.URL)
	c.ShardLabels = spec.Labels
	c.Storage = b.storage(c, c.ShardName(), *spec.Etcd)
	c.VirtualWorkspaceURL = c.URL
	if b.local == nil {
		c.VirtualWorkspaceURL = cmp.Or(spec.VirtualWorkspaceURL, c.URL)
	}
	// A shard asks the root shard again and again for the identities of kcp's APIs, and lists the cache until it is there (kcp:
	// pkg/server/server.go, kcp-start-informers).
	c.Needs, c.Awaits = append(c.Needs, needs...), needs
	b.add(c)
	return c
}

// storage decides where the data of c is kept, and adds the managed etcd that keeps it.
func (b *builder) storage(c *Component, etcdName string, e v1alpha1.Etcd) *Storage {
	switch {
	case b.local != nil:
		return &Storage{
			Embedded:   true,
			ClientPort: b.port(string(c.ID()) + "/etcd-client"),
			PeerPort:   b.port(string(c.ID()) + "/etcd-peer"),
		}
	case e.External != nil:
		return &Storage{Servers: e.External.Endpoints, Prefix: e.External.Prefix, TLSSecret: e.External.TLSSecret}
	case e.Embedded != nil:
		return &Storage{
			Embedded: true, ClientPort: etcdPort, PeerPort: etcdPeerPort,
			Size: e.Embedded.Storage.String(), Class: e.Embedded.StorageClassName, Ephemeral: *e.Embedded.Ephemeral,
		}
	}
	etcd := b.etcd(c, etcdName, e.Managed)
	b.add(etcd)
	c.Needs = append(c.Needs, etcd.ID())
	return &Storage{Etcd: etcd.ID(), Servers: []string{etcd.URL}}
}

func (b *builder) etcd(owner *Component, name string, m *v1alpha1.ManagedEtcd) *Component {
	c := &Component{
		Kind: Etcd, Name: name, Setup: b.t.Name, Cluster: owner.Cluster, Needs: []ID{IDOf(Base, owner.Cluster.Name)},
		Image: m.Image, PullPolicy: owner.PullPolicy, PullSecrets: owner.PullSecrets,
		Replicas: *m.Replicas, Resources: *m.Resources, ExtraArgs: m.ExtraArgs,
		PodTemplates: overlays(m.PodTemplate),
		Storage:      &Storage{PeerPort: etcdPeerPort, Size: m.Storage.String(), Class: m.StorageClassName, Ephemeral: m.Ephemeral},
	}
	b.locate(c, etcdPort, "")
	return c
}

func (b *builder) frontProxy(f *v1alpha1.FrontProxy, first bool, needs ...ID) {
	c := b.server(FrontProxy, f.Name, f.Component, "")
	// A front-proxy asks the root shard for those identities too, and does not listen before it has them (kcp: pkg/proxy).
	c.Needs, c.Awaits = append(c.Needs, needs...), needs
	b.add(c)
	c.ExternalURL = c.URL
	ext := f.External
	if first && ext.Hostname == "" {
		ext = b.setup.Spec.External
	}
	if b.local == nil && ext.Hostname != "" {
		c.ServicePort = ext.Port
		c.URL = httpsURL(c.Host(), c.ServicePort)
		c.ExternalURL = httpsURL(ext.Hostname, ext.Port)
	}
}

func (b *builder) virtualWorkspaces(v *v1alpha1.VirtualWorkspace) {
	c := b.server(VirtualWorkspaces, v.Name, v.Component, v.URL)
	shard := b.shardNamed(v.Shard)
	c.Serves = shard.ID()
	shard.VirtualWorkspaces, shard.VirtualWorkspaceURL = c.ID(), c.URL
	c.Needs = append(c.Needs, shard.ID())
	for _, f := range b.t.OfKind(FrontProxy) {
		c.Needs = append(c.Needs, f.ID())
	}
	b.add(c)
}

func (b *builder) shardNamed(name string) *Component {
	if name == RootShardName {
		return b.t.Root()
	}
	return b.t.byID[IDOf(Shard, name)]
}

// connectShards tells shards, and the servers of their virtual workspaces, which front-proxy to dial: one of their own
// cluster by its Service where there is one, which needs no DNS entry and no hairpin; else the first by its external URL.
func (b *builder) connectShards() {
	proxies := b.t.OfKind(FrontProxy)
	for _, c := range b.t.OfKind(RootShard, Shard, VirtualWorkspaces) {
		c.ExternalURL = proxies[0].ExternalURL
		c.FrontProxy, c.FrontProxyURL = proxies[0].ID(), proxies[0].ExternalURL
		for _, p := range proxies {
			if p.Cluster.Name == c.Cluster.Name {
				c.FrontProxy, c.FrontProxyURL = p.ID(), p.URLFrom(c.Cluster)
				break
			}
		}
	}
}

func (b *builder) kubeconfig(k *v1alpha1.Kubeconfig) {
	c := &Component{Kind: Kubeconfig, Name: k.Name, Setup: b.t.Name, Cluster: b.t.Home}
	a := b.t.Access(*k)
	c.Needs = []ID{IDOf(Base, c.Cluster.Name), a.Target}
	c.Access = &a
	b.add(c)
}

// Access finds the target of a kubeconfig and its address.
func (t *Topology) Access(k v1alpha1.Kubeconfig) Access {
	a := Access{Kubeconfig: k}
	switch {
	case k.Target.Shard == RootShardName:
		a.Target, a.URL = t.Root().ID(), t.Root().URL
	case k.Target.Shard != "":
		c := t.byID[IDOf(Shard, k.Target.Shard)]
		a.Target, a.URL = c.ID(), c.URL
	default:
		c := t.byID[IDOf(FrontProxy, k.Target.FrontProxy)]
		a.Target, a.URL = c.ID(), c.ExternalURL
	}
	return a
}

func mergeImage(base, over v1alpha1.Image) v1alpha1.Image {
	out := v1alpha1.Image{
		Repository:  cmp.Or(over.Repository, base.Repository),
		Tag:         cmp.Or(over.Tag, base.Tag),
		Digest:      cmp.Or(over.Digest, base.Digest),
		PullPolicy:  cmp.Or(over.PullPolicy, base.PullPolicy),
		PullSecrets: base.PullSecrets,
	}
	if over.Tag != "" && over.Digest == "" {
		out.Digest = ""
	}
	if over.PullSecrets != nil {
		out.PullSecrets = over.PullSecrets
	}
	return out
}

func imageRef(i v1alpha1.Image, release string) string {
	if i.Digest != "" {
		return i.Repository + "@" + i.Digest
	}
	return i.Repository + ":" + cmp.Or(i.Tag, release)
}

// kcpVersion is the release inside an image: what its tag says, if the tag is a version.
func kcpVersion(i v1alpha1.Image, release string) string {
	if _, err := version.ParseSemantic(i.Tag); err == nil {
		return i.Tag
	}
	return release
}

func overlays(all ...v1alpha1.Overlay) []v1alpha1.Overlay {
	var out []v1alpha1.Overlay
	for _, o := range all {
		if len(o) > 0 {
			out = append(out, o)
		}
	}
	return out
}
