package topology

import (
	"cmp"
	"maps"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Where pods find their configuration and data.
const (
	podConfigDir = "/etc/kcp"
	podDataDir   = "/var/lib/kcp"
	loopback     = "127.0.0.1"
	// anyAddress is all addresses of both families: Go listens on IPv6 too, also in pods that have only IPv6.
	anyAddress   = "0.0.0.0"
	etcdPort     = 2379
	etcdPeerPort = 2380
)

// Port is the port of every kcp server on a Kubernetes cluster.
const Port = 6443

// Build returns the components of a setup on Kubernetes clusters. The setup is valid and has all its defaults.
func Build(s *v1alpha1.Setup) *Topology { return BuildAt(s, nil) }

// BuildAt does the same with the addresses that clusters have assigned to components. Those that are not known are
// Pending.
func BuildAt(s *v1alpha1.Setup, known Addresses) *Topology {
	return (&builder{setup: s, known: known}).build()
}

type builder struct {
	setup *v1alpha1.Setup
	known Addresses
	local *local
	t     *Topology
}

func (b *builder) build() *Topology {
	b.t = &Topology{Setup: b.setup, Name: b.setup.Metadata.Name, byID: map[ID]*Component{}}
	b.placeClusters()
	spec := &b.setup.Spec
	if cs := spec.CacheServer; cs != nil {
		c := b.server(CacheServer, "", cs.Component, cs.URL)
		c.Storage = b.storage(c, *cs.Etcd)
		b.add(c)
	}
	b.shard(RootShard, "", spec.RootShard.ShardSpec)
	for i := range spec.Shards {
		b.shard(Shard, spec.Shards[i].Name, spec.Shards[i].ShardSpec)
	}
	for i := range spec.FrontProxies {
		b.frontProxy(&spec.FrontProxies[i], i == 0)
	}
	for i := range spec.VirtualWorkspaces {
		b.virtualWorkspaces(&spec.VirtualWorkspaces[i])
	}
	for i := range spec.Kubeconfigs {
		b.kubeconfig(&spec.Kubeconfigs[i])
	}
	b.monitoring()
	b.workspaces(RootWorkspace, nil, spec.Workspaces)
	for i := range spec.Agents {
		b.agent(&spec.Agents[i])
	}
	b.workloads()
	b.chooseFrontProxies()
	b.t.connect()
	return b.t
}

func (b *builder) add(c *Component) {
	c.Monitored = b.monitored() && c.Kind.Runs() && c.Kind != VirtualWorkspaces
	b.t.Components = append(b.t.Components, c)
	b.t.byID[c.ID()] = c
}

// placeClusters decides which clusters the setup uses, and adds the base of each.
func (b *builder) placeClusters() {
	if b.local != nil {
		b.t.Clusters = []Cluster{{Local: true}}
	}
	used := usedClusters(b.setup)
	for _, c := range b.setup.Spec.Clusters {
		if b.local == nil && used[c.Name] {
			b.t.Clusters = append(b.t.Clusters, Cluster{
				Name: c.Name, Context: c.Context, Kubeconfig: c.Kubeconfig, Namespace: c.Namespace, Domain: c.Domain,
				As: c.As, AsGroups: c.AsGroups, Region: c.Region,
				IPFamilyPolicy: c.IPFamilyPolicy, IPFamilies: c.IPFamilies,
			})
		}
	}
	if b.local == nil {
		b.t.Clusters = append(b.t.Clusters, syncerPlaces(b.setup.Spec.Workloads)...)
	}
	for i := range b.t.Clusters {
		if !b.t.Clusters[i].Local {
			b.t.Clusters[i].Metadata = b.setup.Spec.CommonMetadata
		}
	}
	b.t.Home = b.cluster(b.setup.Spec.RootShard.Cluster)
	for _, c := range b.t.Clusters {
		b.add(&Component{Kind: Base, Name: c.Name, Setup: b.t.Name, Cluster: c})
	}
}

func usedClusters(s *v1alpha1.Setup) map[string]bool {
	used := map[string]bool{}
	for _, c := range s.Spec.Components() {
		used[c.Cluster] = true
	}
	for i := range s.Spec.Agents {
		used[s.Spec.Agents[i].Cluster] = true
	}
	if w := s.Spec.Workloads; w != nil {
		used[w.Cluster] = true
		for _, c := range w.Clusters {
			used[c.Cluster] = true
		}
	}
	return used
}

func (b *builder) cluster(name string) Cluster {
	for _, c := range b.t.Clusters {
		if c.Name == name || c.Local {
			return c
		}
	}
	return b.t.Clusters[0]
}

// server returns a component with everything that all kcp servers have in common.
func (b *builder) server(k Kind, name string, spec v1alpha1.Component, url string) *Component {
	s := &b.setup.Spec
	img := mergeImage(s.Image, spec.Image)
	c := &Component{
		Kind: k, Name: name, Setup: b.t.Name, Cluster: b.cluster(spec.Cluster),
		Version: ReleaseIn(img, s.Version), Image: ImageRef(img, s.Version),
		PullPolicy: img.PullPolicy, PullSecrets: img.PullSecrets,
		Replicas: spec.Replicas.Count(), Autoscaled: !spec.Replicas.Managed(),
		Resources: *spec.Resources, ServerSettings: spec.ServerSettings,
		ExtraArgs:    append(append([]string{}, s.Defaults.ExtraArgs...), spec.ExtraArgs...),
		PodTemplates: overlays(s.Defaults.PodTemplate, spec.PodTemplate),
		Services:     overlays(s.Defaults.Service, spec.Service),
	}
	if !c.Cluster.Local {
		c.Aliases = spec.Aliases
	}
	c.Needs = []ID{IDOf(Base, c.Cluster.Name)}
	if !c.Cluster.Local {
		url = b.assignedURL(c, spec.Expose, url)
	}
	b.locate(c, Port, url)
	b.expose(c, spec.Expose, url)
	return c
}

// locate decides where a component listens, at which URL it is reached, and where its files are.
func (b *builder) locate(c *Component, port int32, url string) {
	if c.Cluster.Local {
		dir := ComponentDir(b.local.dir, c.Object())
		c.BindAddress, c.Port, c.Replicas, c.Autoscaled = loopback, b.port(string(c.ID())), 1, false
		c.ConfigDir, c.DataDir = filepath.Join(dir, "config"), filepath.Join(dir, "data")
		c.ServicePort, c.URL = c.Port, httpsURL(loopback, c.Port)
		return
	}
	c.BindAddress = anyAddress
	c.Port = port
	c.ServicePort = port
	c.ConfigDir = podConfigDir
	c.DataDir = podDataDir
	c.URL = cmp.Or(url, httpsURL(c.Host(), port))
}

func (b *builder) shard(k Kind, name string, spec v1alpha1.ShardSpec) {
	c := b.server(k, name, spec.Component, spec.URL)
	c.ShardLabels = ShardLabels(b.setup.Spec.Clusters, spec)
	c.setFrontProxy(spec.FrontProxy)
	c.Authentication = new(ShardAuthentication(b.setup.Spec.Authentication))
	c.Audit = cmp.Or(spec.Audit, b.setup.Spec.Audit)
	c.Authorization = cmp.Or(spec.Authorization, b.setup.Spec.Authorization)
	c.FeatureGates = b.setup.Spec.FeatureGates
	c.Storage = b.storage(c, *spec.Etcd)
	c.VirtualWorkspaceURL = c.URL
	if !c.Cluster.Local {
		c.VirtualWorkspaceURL = cmp.Or(spec.VirtualWorkspaceURL, c.URL)
	}
	b.add(c)
}

// ShardLabels returns the labels of a shard in kcp: its own, and the region of its cluster, also on this machine.
func ShardLabels(clusters []v1alpha1.Cluster, spec v1alpha1.ShardSpec) map[string]string {
	out := maps.Clone(spec.Labels)
	for _, c := range clusters {
		if _, own := out[LabelShardRegion]; c.Name != spec.Cluster || c.Region == "" || own {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[LabelShardRegion] = c.Region
	}
	return out
}

// storage decides where c stores its data, and adds its managed etcd.
func (b *builder) storage(c *Component, e v1alpha1.Etcd) *Storage {
	switch {
	case c.Cluster.Local:
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
	etcd := b.etcd(c, e.Managed)
	b.add(etcd)
	return &Storage{Etcd: etcd.ID(), Servers: []string{etcd.URL}}
}

func (b *builder) etcd(owner *Component, m *v1alpha1.ManagedEtcd) *Component {
	c := &Component{
		Kind: Etcd, Name: owner.ID().ShortName(), Setup: b.t.Name, Cluster: owner.Cluster,
		Needs: []ID{IDOf(Base, owner.Cluster.Name)},
		Image: m.Image, PullPolicy: owner.PullPolicy, PullSecrets: owner.PullSecrets,
		Replicas: *m.Replicas, Resources: *m.Resources, ExtraArgs: m.ExtraArgs,
		PodTemplates: overlays(m.PodTemplate),
		Storage: &Storage{
			PeerPort: etcdPeerPort, Size: m.Storage.String(), Class: m.StorageClassName, Ephemeral: m.Ephemeral,
			AutoCompaction: m.AutoCompaction.Duration,
		},
	}
	if m.Quota != nil {
		c.Storage.Quota = m.Quota.Value()
	}
	b.locate(c, etcdPort, "")
	return c
}

func (b *builder) frontProxy(f *v1alpha1.FrontProxy, first bool) {
	c := b.server(FrontProxy, f.Name, f.Component, "")
	c.Authentication = new(FrontProxyAuthentication(b.setup.Spec.Authentication, f.Authentication))
	c.FeatureGates = b.setup.Spec.FeatureGates
	if !c.Cluster.Local {
		c.Autoscaling = f.Autoscaling
	}
	b.add(c)
	c.PathMappings = f.PathMappings
	c.ExternalURL = c.URL
	ext := f.External
	if first && ext.Hostname == "" {
		ext = b.setup.Spec.External
	}
	if !c.Cluster.Local && ext.Hostname != "" {
		c.ExternalURL, c.Serving = httpsURL(b.assigned(c, f.Expose, ext.Hostname, ext.Port)), f.Serving
		b.expose(c, f.Expose, c.ExternalURL)
		c.URL = httpsURL(c.Host(), c.ServicePort)
	}
}

func (b *builder) virtualWorkspaces(v *v1alpha1.VirtualWorkspace) {
	c := b.server(VirtualWorkspaces, v.Name, v.Component, v.URL)
	shard := b.t.byID[ShardID(v.Shard)]
	c.Serves, c.CacheServer = shard.ID(), b.setup.Spec.CacheServer != nil
	c.Audit = shard.Audit
	c.setFrontProxy(v.FrontProxy)
	if v.Custom() {
		c.Custom = v
		c.Version = b.setup.Spec.Version // the tag of its image is not a release of kcp
		if !administers(c) {
			c.Needs = append(c.Needs, c.Serves)
		}
	} else {
		shard.VirtualWorkspaces, shard.VirtualWorkspaceURL = c.ID(), c.URL
	}
	b.add(c)
}

// chooseFrontProxies decides which front-proxy each component dials: one on its own cluster by its Service, else by its
// external URL.
func (b *builder) chooseFrontProxies() {
	proxies := b.t.FrontProxies()
	var choices []FrontProxyChoice
	for _, p := range proxies {
		choices = append(choices, FrontProxyChoice{p.Name, p.Cluster.Name, p.AcceptsClientCertificates()})
	}
	for _, c := range b.t.Running() {
		if !c.Kind.Dials(FrontProxy) {
			continue
		}
		p := proxies[ChooseFrontProxy(choices, c.FrontProxy.Name(), c.Cluster.Name)]
		c.ExternalURL = proxies[0].ExternalURL
		c.FrontProxy, c.FrontProxyURL = p.ID(), p.ExternalURL
		if p.Cluster.Name == c.Cluster.Name || c.Kind == Agent && p.Cluster.SameServer(c.Cluster) {
			c.FrontProxyURL = p.URLFrom(p.Cluster)
		}
	}
}

func (b *builder) kubeconfig(k *v1alpha1.Kubeconfig) {
	c := &Component{
		Kind: Kubeconfig, Name: k.Name, Setup: b.t.Name, Cluster: b.t.Home, Needs: []ID{IDOf(Base, b.t.Home.Name)},
	}
	a := b.t.Access(*k)
	c.Access = &a
	b.add(c)
}

// Access returns what a kubeconfig gives access to.
func (t *Topology) Access(k v1alpha1.Kubeconfig) Access {
	if k.Target.Shard != "" {
		shard := t.byID[ShardID(k.Target.Shard)]
		return Access{Kubeconfig: k, Target: shard.ID(), URL: shard.URL}
	}
	proxy := t.byID[IDOf(FrontProxy, k.Target.FrontProxy)]
	return Access{Kubeconfig: k, Target: proxy.ID(), URL: proxy.ExternalURL, Serving: proxy.Serving}
}

// setFrontProxy sets the front-proxy that the setup file chooses for c, if it chooses one.
func (c *Component) setFrontProxy(name string) {
	if name != "" {
		c.FrontProxy = IDOf(FrontProxy, name)
	}
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

// ImageRef returns the name of an image as pods have it. Its tag is the release, if it has no other.
func ImageRef(i v1alpha1.Image, release string) string {
	if i.Digest != "" {
		return i.Repository + "@" + i.Digest
	}
	return i.Repository + ":" + cmp.Or(i.Tag, release)
}

// KcpctlRef returns the name of an image of kcpctl as pods have it: with its tag, which names the release for readers,
// also if the digest decides.
func KcpctlRef(i v1alpha1.Image) string {
	ref := i.Repository
	if i.Tag != "" {
		ref += ":" + i.Tag
	}
	if i.Digest != "" {
		ref += "@" + i.Digest
	}
	return ref
}

// ReleaseIn returns the release in an image: its tag, if the tag is a version.
func ReleaseIn(i v1alpha1.Image, release string) string {
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
