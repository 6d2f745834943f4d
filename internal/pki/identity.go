package pki

import "github.com/kcpctl/kcpctl/internal/topology"

// Groups that kcp knows by name.
const (
	// GroupMasters may do everything on a shard; front-proxies strip it (kcp: pkg/proxy/options/authentication.go).
	GroupMasters = "system:masters"
	// GroupAdmin is the strongest group that front-proxies let pass.
	GroupAdmin = "system:kcp:admin"
	// GroupLogicalClusterAdmin lets one shard work in the logical clusters of another.
	GroupLogicalClusterAdmin = "system:kcp:logical-cluster-admin"
	// GroupExternalLogicalClusterAdmin lets a shard work in logical clusters through a front-proxy.
	GroupExternalLogicalClusterAdmin = "system:kcp:external-logical-cluster-admin"
)

// Common names that others have to know.
const (
	// CNFrontProxy is the name in the requestheader certificate of every front-proxy: shards and virtual workspace servers
	// allow it.
	CNFrontProxy = "kcp-front-proxy"
	// CNMountsProxy is the name with which shards forward requests for mounted workspaces: front-proxies allow it.
	CNMountsProxy = "kcp-mounts-proxy"
	// CNSelf is the name in the short-lived certificates of kcpctl itself.
	CNSelf = "kcpctl"
)

// Beginnings of the names that logs and audit events show, before the component's name.
const (
	cnShard                       = "shard-"
	cnLogicalClusterAdmin         = "logical-cluster-admin-"
	cnExternalLogicalClusterAdmin = "external-logical-cluster-admin-"
	cnVirtualWorkspaces           = "virtual-workspaces-"
)

// KubeconfigGroup is the group that the user of a kubeconfig is in when cluster roles are bound to it: the subject of the
// bindings, so that they never reach another user of the same name.
func KubeconfigGroup(c *topology.Component) string {
	return "kcpctl:" + c.Setup + ":kubeconfig:" + c.Name
}

// shardCN is how a shard calls itself.
func shardCN(c *topology.Component) string {
	if c.Kind == topology.RootShard {
		return topology.RootShardName
	}
	return cnShard + c.Name
}
