// Package release has what each kcp release understands, keyed on exact releases: fixes that add flags are backported
// to patch releases of several branches, so neither "newer" nor the minor version decides.
package release

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// Default is the release of a setup that does not specify one.
	Default = "v0.32.3"
	// Oldest is the oldest supported release.
	Oldest = "v0.28.0"
	// Newest is the newest release that kcpctl was tested with.
	Newest = "v0.32.3"
)

// Features are the capabilities and requirements of a release.
type Features struct {
	// Kubernetes is the release of the API server library inside.
	Kubernetes string
	// CacheClientCA: the cache server authenticates its clients, and shards need --cache-kubeconfig with a client
	// certificate (kcp: pkg/cache/server/options; required by pkg/server/options/options.go).
	CacheClientCA bool
	// CacheEtcd: the cache server accepts --etcd-servers. In other releases, it only has an embedded etcd (kcp:
	// pkg/cache/server/options).
	CacheEtcd bool
	// MountProxy: shards accept --mount-proxy-client-{cert,key}-file and front-proxies --requestheader-*. Other
	// releases exit with "unknown flag" (kcp#4238).
	MountProxy bool
	// ExternalHostname: shards use --external-hostname; later releases use the host of --shard-base-url (kcp#3832).
	ExternalHostname bool
	// VWShardExternalURL: virtual workspace servers require --shard-external-url.
	VWShardExternalURL bool
	// VWExternalAdmin: virtual workspace servers accept --external-logical-cluster-admin-kubeconfig.
	VWExternalAdmin bool
	// WorkspaceAuthentication: the feature gate of that name exists.
	WorkspaceAuthentication bool
	// Migration: the feature gate LogicalClusterMigration exists.
	Migration bool
	// FrontProxyGates: front-proxies accept --feature-gates.
	FrontProxyGates bool
	// OwnShards: each shard owns its Shard object. The root workspace has read-only copies, labels are the flag
	// --shard-labels of the shard, and the Admin workspace cordons (kcp#4361, kcp#4371, kcp#4374). No release has
	// it yet.
	OwnShards bool
	// MetricsReader: a binding in the root workspace lets users read the metrics of all shards (kcp:
	// pkg/server/filters/shardlevelpaths.go).
	MetricsReader bool
}

// kubernetes are the releases of the API server library, by the kcp release that first used each, oldest first.
var kubernetes = []struct {
	from    *version.Version
	release string
}{
	{version.MustParseSemantic("v0.28.0"), "v1.32.3"},
	{version.MustParseSemantic("v0.29.0"), "v1.33.3"},
	{version.MustParseSemantic("v0.30.0"), "v1.34.2"},
	{version.MustParseSemantic("v0.31.0"), "v1.35.1"},
	{version.MustParseSemantic("v0.32.0"), "v1.36.0"},
}

// etcds are the minor releases of the etcd inside kcp, by the kcp release that first used each, oldest first (kcp:
// go.mod).
var etcds = []struct {
	from    *version.Version
	release string
}{
	{version.MustParseSemantic("v0.28.0"), "v3.5"},
	{version.MustParseSemantic("v0.30.0"), "v3.6"},
}

// EmbeddedEtcd returns the minor release of the etcd inside a kcp release, such as v3.6. For anything that is not a
// version, it is the one of Newest.
func EmbeddedEtcd(v string) string {
	want, err := core(v)
	if err != nil {
		want = version.MustParseSemantic(Newest)
	}
	out := etcds[0].release
	for _, e := range etcds {
		if want.AtLeast(e.from) {
			out = e.release
		}
	}
	return out
}

// EtcdGoesBack reports whether the etcd inside a kcp release does not start with data of the one inside another
// release: a member of an earlier minor release ends at once (etcd: server/etcdserver/api/membership/downgrade.go).
func EtcdGoesBack(from, to string) bool {
	_, errFrom := core(from)
	_, errTo := core(to)
	return errFrom == nil && errTo == nil && EmbeddedEtcd(to) < EmbeddedEtcd(from)
}

// feature is what some releases have and others do not.
type feature struct {
	// enabled returns its field of Features.
	enabled func(*Features) *bool
	// in are the releases that have it.
	in []span
	// flags are those that only releases with the feature accept. lost and gained explain an upgrade that changes it.
	flags        []string
	lost, gained string
}

// span is the releases from one up to, but not including, another. Without until it has no end.
type span struct{ from, until *version.Version }

// between makes a span. An empty until means that the newest release has the feature too.
func between(from, until string) span {
	s := span{from: version.MustParseSemantic(from)}
	if until != "" {
		s.until = version.MustParseSemantic(until)
	}
	return s
}

func since(from string) span { return between(from, "") }

func (s span) contains(v *version.Version) bool {
	return v.AtLeast(s.from) && (s.until == nil || v.LessThan(s.until))
}

// features are what differs between releases, in the order of the notes about an upgrade.
var features = []feature{
	{
		enabled: func(f *Features) *bool { return &f.MountProxy },
		in:      []span{between("v0.31.6", "v0.32.0"), since("v0.32.3")},
		flags:   []string{"--mount-proxy-client-cert-file", "--mount-proxy-client-key-file"},
		lost:    "mounts of workspaces have no client certificate of their own (kcp#4238). v0.32.3 has it again",
		gained:  "with the feature gate WorkspaceMounts, mounts of workspaces get a client certificate of their own",
	},
	{
		enabled: func(f *Features) *bool { return &f.CacheClientCA },
		in:      []span{between("v0.29.2", "v0.30.0"), since("v0.30.2")},
		lost:    "the cache server does not authenticate its clients",
		gained:  "the cache server authenticates its clients. Shards cannot use the cache until they are upgraded",
	},
	{
		enabled: func(f *Features) *bool { return &f.CacheEtcd },
		in:      []span{since("v0.31.0")},
		lost:    "the cache server only has an embedded etcd",
	},
	{
		enabled: func(f *Features) *bool { return &f.ExternalHostname },
		in:      []span{between("v0.28.0", "v0.31.0")},
		flags:   []string{"--external-hostname"},
		lost:    "shards take their hostname from the base URL (kcp#3832)",
	},
	{
		enabled: func(f *Features) *bool { return &f.VWShardExternalURL },
		in:      []span{between("v0.28.0", "v0.31.0")},
		flags:   []string{"--shard-external-url"},
		lost:    "virtual workspace servers no longer need the external URL of their shard",
	},
	{
		enabled: func(f *Features) *bool { return &f.VWExternalAdmin },
		in:      []span{since("v0.31.2")},
		flags:   []string{"--external-logical-cluster-admin-kubeconfig"},
		lost:    "virtual workspace servers cannot reach workspaces on other shards",
	},
	{
		enabled: func(f *Features) *bool { return &f.WorkspaceAuthentication },
		in:      []span{since("v0.29.0")},
	},
	{
		enabled: func(f *Features) *bool { return &f.FrontProxyGates },
		in:      []span{since("v0.29.0")},
	},
	{
		enabled: func(f *Features) *bool { return &f.Migration },
		in:      []span{since("v0.32.0")},
	},
	{
		enabled: func(f *Features) *bool { return &f.MetricsReader },
		in:      []span{since("v0.32.0")},
	},
	{
		enabled: func(f *Features) *bool { return &f.OwnShards },
		in:      []span{since("v0.33.0")},
		flags:   []string{"--shard-labels"},
		lost:    "the labels of shards are on the Shard objects in the root workspace again",
		gained:  "each shard owns its Shard object: its labels are a flag, and kcpctl cannot remove shards (kcp#4336)",
	},
}

// ExternalReviews reports whether the group system:kcp:external-logical-cluster-admin may create SubjectAccessReviews
// in a release. It is all that virtual workspace servers do through front-proxies (kcp:
// pkg/authorization/bootstrap/policy.go, pkg/virtual/initializingworkspaces).
func ExternalReviews(v string) bool {
	parsed, err := core(v)
	return err != nil || since("v0.31.3").contains(parsed)
}

// CacheLogFormat reports whether cache servers of a release accept --logging-format (kcp: pkg/cache/server/options).
func CacheLogFormat(v string) bool {
	parsed, err := core(v)
	return err != nil || since("v0.31.0").contains(parsed)
}

// Known returns the releases up to Newest in which something changed that kcpctl takes into account, oldest first.
func Known() []string {
	var all []*version.Version
	for _, k := range kubernetes {
		all = append(all, k.from)
	}
	for _, f := range features {
		for _, s := range f.in {
			all = append(all, s.from)
			if s.until != nil {
				all = append(all, s.until)
			}
		}
	}
	slices.SortFunc(all, func(a, b *version.Version) int {
		switch {
		case a.LessThan(b):
			return -1
		case b.LessThan(a):
			return 1
		}
		return 0
	})
	var out []string
	for _, v := range all {
		if v.LessThan(version.MustParseSemantic(Newest)) || v.EqualTo(version.MustParseSemantic(Newest)) {
			out = append(out, "v"+v.String())
		}
	}
	return slices.Compact(out)
}

// Of returns the features of a release. A pre-release counts as its release, a release that is older than Oldest as
// Oldest, and anything that is not a version as Newest. One that is newer has the features of Newest, and those that
// are known of kcp's development.
func Of(v string) Features {
	want, err := core(v)
	if err != nil {
		want = version.MustParseSemantic(Newest)
	}
	if oldest := kubernetes[0].from; want.LessThan(oldest) {
		want = oldest
	}
	var out Features
	for _, k := range kubernetes {
		if want.AtLeast(k.from) {
			out.Kubernetes = k.release
		}
	}
	for _, f := range features {
		*f.enabled(&out) = slices.ContainsFunc(f.in, func(s span) bool { return s.contains(want) })
	}
	return out
}

// core is a version without its pre-release and build parts.
func core(v string) (*version.Version, error) {
	p, err := version.ParseSemantic(v)
	if err != nil {
		return nil, err
	}
	return coreOf(p), nil
}

func coreOf(v *version.Version) *version.Version {
	return version.MustParseSemantic(fmt.Sprintf("%d.%d.%d", v.Major(), v.Minor(), v.Patch()))
}

// NewerNote is a note about a release that is newer than Newest, or its pre-release. It is empty for all others.
func NewerNote(v string) string {
	p, err := version.ParseSemantic(v)
	if err != nil || !version.MustParseSemantic(Newest).LessThan(p) {
		return ""
	}
	note := fmt.Sprintf("kcp %s is newer than %s, the newest release that this kcpctl supports. It runs with the "+
		"flags of %s", v, Newest, Newest)
	if Of(v).OwnShards {
		note += ", and as if each shard owned its Shard object, which kcp plans for v0.33"
	}
	return note
}
