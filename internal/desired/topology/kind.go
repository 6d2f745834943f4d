package topology

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Kind is a kind of component. Its value is the first part of a component's ID.
type Kind string

// The kinds of components.
const (
	Base              Kind = "base"
	Etcd              Kind = "etcd"
	CacheServer       Kind = "cache-server"
	RootShard         Kind = "root-shard"
	Shard             Kind = "shard"
	FrontProxy        Kind = "front-proxy"
	VirtualWorkspaces Kind = "virtual-workspaces"
	Kubeconfig        Kind = "kubeconfig"
	Monitoring        Kind = "monitoring"
	Workspace         Kind = "workspace"
	Agent             Kind = "agent"
	// Workloads is the controller of transparent multi-cluster, and Physical a cluster that it schedules to.
	Workloads Kind = "workloads"
	Physical  Kind = "cluster"
)

const (
	// RootShardName is the name that kcp gives the root shard (kcp: pkg/apis/core/v1alpha1, RootShard).
	RootShardName = "root"
	// CacheName is the short name of the cache server.
	CacheName = "cache"
	// readyPath is the path at which servers of kcp and of kcpctl tell that they are ready.
	readyPath = "/readyz"
	// metricsPath is the path at which agents do: they have no other.
	metricsPath = "/metrics"
	// ContainerKcpctl is the name of containers that run kcpctl.
	ContainerKcpctl = "kcpctl"
)

// traits are what all components of a kind have in common.
type traits struct {
	kind Kind
	// only is the short name of the only component of a kind; other kinds have any number of components, each with its
	// own name.
	only string
	// stem is the part of object names between the setup's name and the component's. Default: the kind.
	stem string
	// plural is the kind's plural. Default: the kind with an s.
	plural string
	// program is the binary of kcp that components of the kind run. Others run none.
	program string
	// container is the name of the container that kcpctl renders. Default: kcp, the same in all kcp servers, so that
	// one podTemplate works for all.
	container string
	// probed is the path at which processes tell without TLS that they are ready. Default: /readyz, with TLS.
	probed string
	// runs: it is a workload. serves: it is a kcp server, reached at a URL. data: it holds data. proxied: front-proxies
	// forward requests to it.
	runs, serves, data, proxied bool
	// tenant: it uses kcp as its users do, so it is applied when workspaces can be created on all shards.
	tenant bool
	// reloads: its process reads files again that have changed, so that a new certificate restarts nothing.
	reloads bool
	// clusters: it uses the API servers of Kubernetes clusters.
	clusters bool
	// oneSecret: its certificate is in the Secret with its name.
	oneSecret bool
	// layer is the row of the drawing in which the kind appears: the clients of kcp dial the first row.
	layer int
	// parts are the last parts of the names of objects that follow neither from the kind's certificates nor from its
	// traits.
	parts []string
}

// kinds has a row for every kind, in the order in which components come up.
var kinds = []traits{
	{kind: Base},
	{kind: Etcd, container: "etcd", runs: true, data: true, layer: 3,
		parts: []string{PeerService, MembersConfig, JoinConfig}},
	{kind: CacheServer, only: CacheName, program: "cache-server", runs: true, serves: true, data: true, layer: 2},
	{kind: RootShard, only: RootShardName, program: "kcp", runs: true, serves: true, data: true, proxied: true,
		layer: 1, parts: []string{ConfigPart}},
	{kind: Shard, program: "kcp", runs: true, serves: true, data: true, proxied: true, layer: 1,
		parts: []string{ConfigPart}},
	{kind: FrontProxy, plural: "front-proxies", program: "kcp-front-proxy", runs: true, serves: true,
		parts: []string{ConfigPart}},
	{kind: VirtualWorkspaces, plural: "virtual-workspaces", stem: "vw", program: "virtual-workspaces", runs: true,
		serves: true, proxied: true, parts: []string{ConfigPart}},
	{kind: Kubeconfig, oneSecret: true},
	{kind: Monitoring, plural: "monitoring", tenant: true, oneSecret: true, parts: []string{DashboardPart}},
	{kind: Workspace, tenant: true},
	{kind: Agent, container: "api-syncagent", probed: metricsPath, runs: true, tenant: true, reloads: true,
		clusters: true, parts: []string{ServicePart}},
	{kind: Workloads, plural: "workloads", container: ContainerKcpctl, probed: readyPath, runs: true, tenant: true,
		reloads: true, clusters: true},
	{kind: Physical, stem: "syncer", container: ContainerKcpctl, probed: readyPath, runs: true, tenant: true,
		reloads: true, clusters: true, parts: []string{TokenPart}},
}

func (k Kind) traits() traits {
	for i := range kinds {
		if kinds[i].kind == k {
			return kinds[i]
		}
	}
	return traits{kind: k}
}

// Kinds returns all kinds, in the order in which components come up.
func Kinds() []Kind { return kindsThat(func(Kind) bool { return true }) }

// Stages returns all kinds in the order in which components go down, dependants first. All kcp servers are one stage:
// when all of them end, none has to wait for the requests of another.
func Stages() [][]Kind {
	var out [][]Kind
	for _, k := range slices.Backward(Kinds()) {
		if n := len(out); n > 0 && k.Serves() && out[n-1][0].Serves() {
			out[n-1] = append(out[n-1], k)
		} else {
			out = append(out, []Kind{k})
		}
	}
	return out
}

func kindsThat(hold func(Kind) bool) []Kind {
	var out []Kind
	for _, t := range kinds {
		if hold(t.kind) {
			out = append(out, t.kind)
		}
	}
	return out
}

// order returns the position of the kind in Kinds.
func (k Kind) order() int { return slices.IndexFunc(kinds, func(t traits) bool { return t.kind == k }) }

// Runs reports whether components of the kind can be workloads (see Component.Runs). The others are only objects.
func (k Kind) Runs() bool { return k.traits().runs }

// Serves reports whether components of the kind are kcp servers, which are reached at a URL.
func (k Kind) Serves() bool { return k.traits().serves }

// HoldsData reports whether components of the kind hold data.
func (k Kind) HoldsData() bool { return k.traits().data }

// Proxied reports whether front-proxies forward requests to components of the kind.
func (k Kind) Proxied() bool { return k.traits().proxied }

// Plural returns the word for several components of the kind: shards, front-proxies.
func (k Kind) Plural() string { return cmp.Or(k.traits().plural, string(k)+"s") }

// Program returns the binary of kcp that components of a kind run, or "" if they run none.
func (k Kind) Program() string { return k.traits().program }

// Container returns the name of the container that kcpctl renders for pods of the kind; "" for kinds without pods.
func (k Kind) Container() string {
	if !k.Runs() {
		return ""
	}
	return cmp.Or(k.traits().container, "kcp")
}

// OwnContainer returns the index of the container that kcpctl renders for a pod of the kind, by the names of the
// containers: a podTemplate and admission webhooks can put others before it. A container without others may have any
// name. It is -1 if there is none.
func (k Kind) OwnContainer(names []string) int {
	i := slices.Index(names, k.Container())
	if i < 0 && len(names) == 1 {
		return 0
	}
	return i
}

// ContainerOf returns the container that kcpctl renders for a pod of the kind (see OwnContainer), or nil.
func (k Kind) ContainerOf(pod *corev1.PodSpec) *corev1.Container {
	names := make([]string, 0, len(pod.Containers))
	for i := range pod.Containers {
		names = append(names, pod.Containers[i].Name)
	}
	if i := k.OwnContainer(names); i >= 0 {
		return &pod.Containers[i]
	}
	return nil
}

// Tenant reports whether components of the kind use kcp as its users do: they are applied when it is certain that
// workspaces can be created on all shards.
func (k Kind) Tenant() bool { return k.traits().tenant }

// Reloads reports whether processes of components of the kind read files again that have changed.
func (k Kind) Reloads() bool { return k.traits().reloads }

// Probe returns the scheme and the path at which processes of the kind tell that they are ready.
func (k Kind) Probe() (scheme, path string) {
	if path := k.traits().probed; path != "" {
		return "http", path
	}
	return "https", readyPath
}

// Singleton reports whether a setup has at most one component of the kind, which then has no name.
func (k Kind) Singleton() bool { return k.traits().only != "" }

// IsShard reports whether components of the kind are shards: the root shard or another one.
func (k Kind) IsShard() bool { return k == RootShard || k == Shard }

// Layer returns the row of the drawing in which the kind appears. The clients of kcp dial row 0.
func (k Kind) Layer() int { return k.traits().layer }
