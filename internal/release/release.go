// Package release knows what each kcp release understands, keyed on exact releases: fixes with new flags land in patch
// releases of two branches at once, so neither "newer" nor a minor version says enough.
package release

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// Default is the release that a setup gets which names none.
	Default = "v0.32.3"
	// Oldest is the first release that kcpctl can render.
	Oldest = "v0.28.0"
	// Newest is the newest release that kcpctl was tested with.
	Newest = "v0.32.3"
)

// Features are what a release understands or demands.
type Features struct {
	// Kubernetes is the release of the API server library inside.
	Kubernetes string
	// CacheClientCA: the cache server authenticates its clients, and shards need --cache-kubeconfig with a client certificate
	// (kcp: pkg/cache/server/options; required by pkg/server/options/options.go).
	CacheClientCA bool
	// MountProxy: shards take --mount-proxy-client-{cert,key}-file and front-proxies --requestheader-*; in all other
	// releases these flags are unknown and end the process (kcp#4238).
	MountProxy bool
	// ExternalHostname: shards use --external-hostname; later releases take the host of --shard-base-url (kcp#3832).
	ExternalHostname bool
	// VWShardExternalURL: virtual workspace servers require --shard-external-url.
	VWShardExternalURL bool
	// VWExternalAdmin: virtual workspace servers take --external-logical-cluster-admin-kubeconfig.
	VWExternalAdmin bool
	// WorkspaceAuthentication: the feature gate of that name exists.
	WorkspaceAuthentication bool
	// Migration: the feature gate LogicalClusterMigration exists.
	Migration bool
}

type row struct {
	from string
	Features
}

// rows says from which release on which features hold, up to the next row.
func rows() []row {
	return []row{
		{"v0.28.0", Features{Kubernetes: "v1.32.3", ExternalHostname: true, VWShardExternalURL: true}},
		{"v0.29.0", Features{Kubernetes: "v1.33.3", ExternalHostname: true, VWShardExternalURL: true, WorkspaceAuthentication: true}},
		{"v0.29.2", Features{Kubernetes: "v1.33.3", ExternalHostname: true, VWShardExternalURL: true, WorkspaceAuthentication: true, CacheClientCA: true}},
		{"v0.30.0", Features{Kubernetes: "v1.34.2", ExternalHostname: true, VWShardExternalURL: true, WorkspaceAuthentication: true}},
		{"v0.30.2", Features{Kubernetes: "v1.34.2", ExternalHostname: true, VWShardExternalURL: true, WorkspaceAuthentication: true, CacheClientCA: true}},
		{"v0.31.0", Features{Kubernetes: "v1.35.1", WorkspaceAuthentication: true, CacheClientCA: true}},
		{"v0.31.2", Features{Kubernetes: "v1.35.1", WorkspaceAuthentication: true, CacheClientCA: true, VWExternalAdmin: true}},
		{"v0.31.6", Features{Kubernetes: "v1.35.1", WorkspaceAuthentication: true, CacheClientCA: true, VWExternalAdmin: true, MountProxy: true}},
		{"v0.32.0", Features{Kubernetes: "v1.36.0", WorkspaceAuthentication: true, CacheClientCA: true, VWExternalAdmin: true, Migration: true}},
		{"v0.32.3", Features{Kubernetes: "v1.36.0", WorkspaceAuthentication: true, CacheClientCA: true, VWExternalAdmin: true, Migration: true, MountProxy: true}},
	}
}

// Known are the releases with which something changed that kcpctl knows of, oldest first.
func Known() []string {
	var out []string
	for _, r := range rows() {
		out = append(out, r.from)
	}
	return out
}

// Of returns the features of a release. A pre-release has those of the release that it leads to; what is no version, or is
// newer than the table, counts as the newest.
func Of(v string) Features {
	all := rows()
	want, err := core(v)
	if err != nil {
		return all[len(all)-1].Features
	}
	for _, r := range slices.Backward(all) {
		if want.AtLeast(version.MustParseSemantic(r.from)) {
			return r.Features
		}
	}
	return all[0].Features
}

// core is a version without its pre-release and build parts.
func core(v string) (*version.Version, error) {
	p, err := version.ParseSemantic(v)
	if err != nil {
		return nil, err
	}
	return p.WithPreRelease("").WithBuildMetadata(""), nil
}
