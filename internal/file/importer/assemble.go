package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// What kcp-operator sets if a field is not set (kcp-operator v0.9: internal/resources).
const (
	operatorRepository = "ghcr.io/kcp-dev/kcp"
	operatorTag        = "v0.32.3"
	operatorReplicas   = 2
	operatorPort       = 6443
	operatorDomain     = "cluster.local"
	operatorLogFormat  = "json" // of shards: other servers write text
	// registry is the prefix of kcp's keys in etcd without --etcd-prefix.
	registry = "/registry"
)

// assembly makes the setup of mapped objects.
type assembly struct {
	reader *reader
	setup  *v1alpha1.Setup
	// root has the fields that the whole setup shares: it is the RootShard or the values of a chart.
	root *object
	// gates are the feature gates that moved to the setup.
	gates []value
}

// operator makes the setup of the objects of kcp-operator.
func (a *assembly) operator() {
	r := a.reader
	a.root = r.of(kindRootShard)[0]
	a.flags()
	a.resolve()
	a.name()
	a.place()
	a.distribute()
	if a.root.name != "" { // otherwise its absence is reported
		a.setup.Spec.TakeOver = &v1alpha1.TakeOver{RootShard: a.root.name, UID: a.root.uid}
	}
	// A cache server has its own authority in kcp-operator, so that its clients cannot use another one.
	for _, o := range slices.Concat(r.of(kindRootShard), r.of(kindShard), r.of(kindFrontProxy), r.of(kindVirtualWorkspace)) {
		o.component.Aliases = []string{operator.Service(o.kind, o.name)}
	}
	a.cacheServer()
	a.authentication()
	a.shards()
	a.frontProxies()
	a.virtualWorkspaces()
	a.setup.Spec.HomeWorkspaces = a.root.home
	a.setup.Spec.Batteries = a.root.batteries
	a.kubeconfigs()
	a.share()
	a.mounts()
	for _, o := range a.all() {
		for _, add := range o.metadata {
			add(&a.setup.Spec.CommonMetadata)
		}
	}
}

// nameSuffix distinguishes the setup from the RootShard: both have a Secret with the service-account key,
// NAME-service-account.
const nameSuffix = "-kcp"

// name decides the name of the setup, and with it the names of its objects.
func (a *assembly) name() {
	name := cmp.Or(a.reader.options.Name, a.root.name+nameSuffix)
	a.setup.Metadata.Name = name
	for _, o := range append([]*object{a.root}, a.reader.of(kindShard)...) {
		if o.name == name {
			o.find(Review, fmt.Sprintf("the Secret %s of kcp-operator has the name of one of this setup",
				operator.ServiceAccountSecret(name)),
				"choose another name for the setup with --name, unless it is on another cluster or in "+
					"another namespace")
		}
	}
}

// resolve checks that all objects are in the namespace of the root shard. It also checks that their references exist.
func (a *assembly) resolve() {
	known := map[refKind][]string{}
	for _, o := range a.reader.operator() {
		if o.name != "" {
			known[refKind(o.kind)] = append(known[refKind(o.kind)], o.name)
		}
	}
	for _, o := range a.reader.operator() {
		if a.namespace(o) != a.namespace(a.root) {
			o.fail(fmt.Sprintf("the namespace is %q, but that of %s is %q", a.namespace(o), a.root,
				a.namespace(a.root)),
				"kcp-operator finds references in the same namespace only")
		}
		for _, kind := range []refKind{refRootShard, refShard, refFrontProxy, refCacheServer, refVirtualWorkspace} {
			name := o.ref(kind)
			if name == "" || slices.Contains(known[kind], name) {
				continue
			}
			hint := "add its file"
			if len(known[kind]) > 0 {
				hint = "known: " + strings.Join(known[kind], ", ")
			}
			o.refs[kind].fail(fmt.Sprintf("the input has no %s %q", kind, name), hint)
		}
	}
}

func (a *assembly) namespace(o *object) string {
	return cmp.Or(o.namespace, a.reader.options.Namespace)
}

func (a *assembly) domain() string { return cmp.Or(a.root.domain, operatorDomain) }

// place sets the namespace and the domain of the only cluster.
func (a *assembly) place() {
	options := a.reader.options
	cluster := v1alpha1.Cluster{
		Name: defaultCluster, Context: options.Context, Kubeconfig: options.Kubeconfig,
		Namespace: a.namespace(a.root), Domain: a.root.domain,
	}
	for _, o := range a.reader.operator() {
		if o.bundled.node == nil && o.domain != "" && o.domain != a.domain() {
			o.origins["spec.clusters[0].domain"].fail(
				fmt.Sprintf("the domain of %s is not that of %s", o,
					a.root), "a cluster has one domain: use the same everywhere")
		}
	}
	if cluster.Namespace == "" {
		a.root.find(Review, "the manifests have no namespace, so the setup has the default, kcp",
			"if they are applied to another one, import them with --namespace, because the Secrets that "+
				"they name are there")
	}
	if cmp.Or(cluster.Namespace, cluster.Domain, cluster.Context, cluster.Kubeconfig) != "" {
		a.setup.Spec.Clusters = []v1alpha1.Cluster{cluster}
	}
}

// distribute places the components that kcp-operator bundles for other clusters.
func (a *assembly) distribute() {
	spec := &a.setup.Spec
	bundled := slices.DeleteFunc(a.reader.operator(), func(o *object) bool { return o.bundled.node == nil })
	if len(bundled) == 0 {
		return
	}
	if len(spec.Clusters) == 0 {
		spec.Clusters = []v1alpha1.Cluster{{Name: defaultCluster}}
	}
	for _, o := range a.reader.operator() {
		if a.root.bundled.node != nil {
			o.component.Cluster = defaultCluster
		}
	}
	for _, o := range bundled {
		c := v1alpha1.Cluster{Name: o.name, Context: o.name, Namespace: spec.Clusters[0].Namespace, Domain: o.domain}
		if slices.ContainsFunc(spec.Clusters, func(other v1alpha1.Cluster) bool { return other.Name == c.Name }) {
			c.Name, c.Context = strings.ToLower(o.kind)+"-"+o.name, strings.ToLower(o.kind)+"-"+o.name
		}
		o.component.Cluster = c.Name
		spec.Clusters = append(spec.Clusters, c)
		o.bundled.find(Review, "the component is on another cluster, whose kubeconfig context the input does not have",
			fmt.Sprintf("set context and namespace of %s in spec.clusters, and create the Secrets that the component "+
				"names there", c.Name))
	}
}

// defaultCluster is the cluster of kcp-operator.
const defaultCluster = "default"

func externalEtcd(o *object) *v1alpha1.Etcd {
	if len(o.etcd.Endpoints) == 0 {
		return nil
	}
	for i, e := range o.etcd.Endpoints {
		o.etcd.Endpoints[i] = strings.TrimSuffix(e, "/")
	}
	return &v1alpha1.Etcd{External: &o.etcd}
}

func (a *assembly) cacheServer() {
	for _, o := range a.reader.of(kindCacheServer) {
		o.prefix = "spec.cacheServer"
		if o.etcd.Prefix != "" {
			o.from("etcd.external.prefix").find(NotMapped,
				"the prefix of a cache server is always /cache up to kcp v0.32.3",
				"two installations need two etcds for their cache servers")
			o.etcd.Prefix = ""
		}
		if len(o.etcd.Endpoints) == 0 && o.component.Replicas > 1 {
			o.from("replicas").find(NotMapped, "a cache server without an external etcd has one replica", "")
			o.component.Replicas = 0
		}
		used := slices.ContainsFunc(a.reader.objects, func(s *object) bool { return s.ref(refCacheServer) == o.name })
		if !used {
			o.find(NotMapped, "no shard refers to it, and in a setup all shards use the cache server",
				"set spec.cacheServer if you want it")
			continue
		}
		if a.reader.options.Live && len(o.etcd.Endpoints) == 0 {
			o.find(Review, "it has no external etcd: the cache server of kcpctl starts empty, and the shards fill "+
				"it after kcpctl import --finish",
				"run kcpctl up with --skip-canary, and kcpctl import --finish directly after it")
		}
		a.setup.Spec.CacheServer = &v1alpha1.CacheServer{Component: o.component, Etcd: externalEtcd(o)}
	}
}

// shards sets the root shard and the others.
func (a *assembly) shards() {
	a.root.prefix = "spec.rootShard"
	a.setup.Spec.RootShard = v1alpha1.RootShard{ShardSpec: a.shard(a.root)}
	for i, o := range a.reader.of(kindShard) {
		o.prefix = fmt.Sprintf("spec.shards[%d]", i)
		a.setup.Spec.Shards = append(a.setup.Spec.Shards, v1alpha1.Shard{Name: o.name, ShardSpec: a.shard(o)})
	}
}

func (a *assembly) shard(o *object) v1alpha1.ShardSpec {
	if len(o.etcd.Endpoints) == 0 {
		o.fail("required: spec.etcd.endpoints", "")
	} else if o.etcd.Prefix == "" {
		o.etcd.Prefix = registry
		o.comment("etcd.external.prefix", "kcp-operator sets no prefix by default: the data is below "+registry+".")
	}
	if o.component.LogFormat == "" {
		o.component.LogFormat = operatorLogFormat
		o.comment("logFormat", "The default of kcp-operator.")
	}
	a.baseURL(o, operator.Service(o.kind, o.name))
	root := a.root.ref(refCacheServer)
	if own := o.ref(refCacheServer); own != "" && root == "" || own != "" && own != root {
		o.refs[refCacheServer].find(Review, "in a setup, all shards use the same cache server",
			"remove spec.cacheServer if no shard needs a separate one")
	}
	return v1alpha1.ShardSpec{Component: o.component, Etcd: externalEtcd(o), URL: o.url,
		VirtualWorkspaceURL: o.virtualWorkspaceURL, Audit: o.audited(), Authorization: o.authorized()}
}

// baseURL decides the base URL of a shard, which does not change: running front-proxies lose a shard whose base URL
// changes, until they are restarted (kcp: pkg/proxy/index/index_controller.go, UpdateFunc).
func (a *assembly) baseURL(o *object, service string) {
	o.url = strings.TrimSuffix(o.url, "/")
	if len(a.setup.Spec.Clusters) > 1 && o.url == "" {
		return // other clusters do not reach its Service: the setup requires a URL
	}
	if o.url == "" {
		ns := cmp.Or(a.namespace(a.root), "kcp")
		o.url = fmt.Sprintf("https://%s.%s.svc.%s:%d", service, ns, a.domain(), operatorPort)
	}
	if host := strings.TrimPrefix(o.url, "https://"); host == service || strings.HasPrefix(host, service+".") ||
		strings.HasPrefix(host, service+":") {
		o.comment("url", "The base URL is the Service of kcp-operator, which aliases keeps.")
		return
	}
	o.from("url").find(Review, "the URL leads to the Service "+service+" of kcp-operator",
		"up lets this Service lead to kcpctl's shard; before you remove it from aliases, change the DNS entry "+
			"or the load balancer")
}

// frontProxies sets the front-proxies. The first is the one with the external address of the root shard.
func (a *assembly) frontProxies() {
	external := a.root.external
	a.setup.Spec.External = external
	all := slices.Clone(a.reader.of(kindFrontProxy))
	main := slices.IndexFunc(all, func(o *object) bool { return sameAddress(o.external, external) })
	if main > 0 {
		all = slices.Insert(slices.Delete(all, main, main+1), 0, a.reader.of(kindFrontProxy)[main])
	}
	if len(all) == 0 {
		a.root.find(Review, "the input has no FrontProxy, and a setup has at least one",
			"kcpctl adds the front-proxy main")
	}
	for i, o := range all {
		o.prefix = fmt.Sprintf("spec.frontProxies[%d]", i)
		address := o.external
		switch {
		case i == 0 && main >= 0:
			address = v1alpha1.External{}
		case address == (v1alpha1.External{}):
			address = external
		}
		a.setup.Spec.FrontProxies = append(a.setup.Spec.FrontProxies, v1alpha1.FrontProxy{
			Name: o.name, Component: o.component, External: address, Authentication: o.auth,
			Serving: a.serving(o, o.name), PathMappings: o.mappings(),
		})
	}
	if main < 0 && len(all) > 0 {
		a.setup.Spec.External = v1alpha1.External{}
		a.root.find(Review, fmt.Sprintf("no FrontProxy has the external address of the root shard, %s:%d",
			external.Hostname, external.Port),
			"in a setup, the address of the first front-proxy is the address of kcp: put the right one first")
	}
}

// sameAddress reports whether a front-proxy has the external address of the root shard.
func sameAddress(proxy, root v1alpha1.External) bool {
	return proxy == (v1alpha1.External{}) ||
		proxy.Hostname == root.Hostname && cmp.Or(proxy.Port, operatorPort) == cmp.Or(root.Port, operatorPort)
}

// shardName returns the name in kcp of the shard that an object refers to, or "".
func shardName(o *object) string {
	if o.ref(refRootShard) != "" {
		return topology.RootShardName
	}
	return o.ref(refShard)
}

// virtualWorkspaces sets the servers of virtual workspaces that shards refer to, and servers with their own command.
func (a *assembly) virtualWorkspaces() {
	users := map[string][]*object{}
	for _, o := range append([]*object{a.root}, a.reader.of(kindShard)...) {
		if name := o.ref(refVirtualWorkspace); name != "" {
			users[name] = append(users[name], o)
		}
	}
	for _, o := range a.reader.of(kindVirtualWorkspace) {
		vw := o.custom
		vw.Name = o.name
		vw.Component = o.component
		if o.external.Hostname != "" {
			vw.URL = fmt.Sprintf("https://%s:%d", o.external.Hostname, cmp.Or(o.external.Port, operatorPort))
		}
		switch {
		case vw.Custom():
			vw.Shard = shardName(o)
			for _, shard := range users[o.name] {
				shard.refs[refVirtualWorkspace].find(NotMapped,
					"a server with its own command serves beside the virtual workspaces of a shard",
					"the shard serves its own virtual workspaces")
			}
		case len(users[o.name]) == 0:
			o.find(NotMapped, "no shard refers to this server of virtual workspaces",
				"to keep it as your own server, set command")
			continue
		default:
			vw.Shard = a.served(o, users[o.name])
			a.moveURL(&vw, users[o.name][0])
			if vw.KubeconfigSecret != "" {
				vw.KubeconfigSecret = ""
				o.find(NotMapped, "kcpctl writes the kubeconfig with which kcp's own server dials its shard",
					"check that the server needs no permissions but those of a shard")
			}
		}
		o.prefix = fmt.Sprintf("spec.virtualWorkspaces[%d]", len(a.setup.Spec.VirtualWorkspaces))
		a.setup.Spec.VirtualWorkspaces = append(a.setup.Spec.VirtualWorkspaces, vw)
	}
}

// moveURL gives a server of virtual workspaces the URL that flags of its shard set, unless it has one: kcp-operator
// sets it again after extraArgs.
func (a *assembly) moveURL(vw *v1alpha1.VirtualWorkspace, user *object) {
	shard := &a.setup.Spec.RootShard.ShardSpec
	for i := range a.setup.Spec.Shards {
		if a.setup.Spec.Shards[i].Name == vw.Shard {
			shard = &a.setup.Spec.Shards[i].ShardSpec
		}
	}
	if vw.URL != "" && shard.VirtualWorkspaceURL != "" {
		user.from("virtualWorkspaceURL").find(NotNeeded, "kcp-operator sets the flag again, to the address of the "+
			"VirtualWorkspace "+vw.Name, "")
	}
	vw.URL = cmp.Or(vw.URL, shard.VirtualWorkspaceURL)
	shard.VirtualWorkspaceURL = ""
}

// served returns the name of the shard that kcp's server of virtual workspaces works for: the first of those that refer
// to it.
func (a *assembly) served(o *object, users []*object) string {
	shard := topology.RootShardName
	if users[0] != a.root {
		shard = users[0].name
	}
	for _, other := range users[1:] {
		other.refs[refVirtualWorkspace].find(NotMapped,
			"a server of virtual workspaces serves one shard, and this one serves another",
			"the shard serves its own virtual workspaces")
	}
	if shardName(o) != shard {
		o.find(Review, "its target is not the shard that refers to it",
			"in a setup, it uses the shard that it serves")
	}
	return shard
}

func (a *assembly) kubeconfigs() {
	for i, o := range a.reader.of(kindKubeconfig) {
		o.prefix = fmt.Sprintf("spec.kubeconfigs[%d]", i)
		k := o.kubeconfig
		k.Name, k.Target = o.name, v1alpha1.Target{FrontProxy: o.ref(refFrontProxy), Shard: shardName(o)}
		if k.Target.Shard == "" {
			k.Groups = a.passed(o)
		}
		a.setup.Spec.Kubeconfigs = append(a.setup.Spec.Kubeconfigs, k)
	}
}

// passed returns the groups of a kubeconfig without those that front-proxies drop.
func (a *assembly) passed(o *object) []string {
	var out []string
	for _, g := range o.kubeconfig.Groups {
		if g == "system:masters" || g == "system:kcp:logical-cluster-admin" {
			o.from("groups").find(NotMapped, "front-proxies drop the group "+g,
				"for an administrator, use system:kcp:admin")
			continue
		}
		out = append(out, g)
	}
	return out
}
