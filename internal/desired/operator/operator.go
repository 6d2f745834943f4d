// Package operator knows what kcp-operator calls the objects of an installation (kcp-operator v0.9:
// internal/resources/resources.go). It is pure.
package operator

import (
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// The groups of its APIs. Objects of the second one are derived from objects of the first.
const (
	Group         = "operator.kcp.io"
	GroupCompiled = "deploy.operator.kcp.io"
)

// Version is the version of its APIs.
const Version = "v1alpha1"

// Resource is an API of kcp-operator.
type Resource struct{ Kind, Name string }

// Resources are the APIs that describe an installation, each before those that its objects refer to.
var Resources = []Resource{
	{"Kubeconfig", "kubeconfigs"}, {"FrontProxy", "frontproxies"}, {"VirtualWorkspace", "virtualworkspaces"},
	{"Shard", "shards"}, {"RootShard", "rootshards"}, {"CacheServer", "cacheservers"},
}

// ManagedBy is the value of the label app.kubernetes.io/managed-by on the pods that it manages.
const ManagedBy = "kcp-operator"

// Service returns the name of the Service of an object of a kind, which is also the name of its Deployment.
func Service(kind, name string) string {
	switch kind {
	case "RootShard":
		return name + "-kcp"
	case "Shard":
		return name + "-shard-kcp"
	case "FrontProxy":
		return name + "-front-proxy"
	case "CacheServer":
		return name + "-cache-server"
	}
	return name + "-virtual-workspace"
}

// AuthoritySecrets returns the Secrets of the authorities that a setup takes over: intermediates under the authority of
// the root shard. Its etcds are not its own, so it has no authority for them.
func AuthoritySecrets(rootShard string) map[topology.CA]string {
	return map[topology.CA]string{
		topology.ServerCA:        rootShard + "-server-ca",
		topology.ClientCA:        rootShard + "-client-ca",
		topology.RequestHeaderCA: rootShard + "-requestheader-client-ca",
	}
}

// ServiceAccountSecret returns the Secret with the key with which a shard signs service-account tokens. Each shard has
// its own key.
func ServiceAccountSecret(shard string) string { return shard + "-service-account" }

// OwnGroup reports whether an apiVersion is in a group of kcp-operator.
func OwnGroup(apiVersion string) bool {
	group, _, _ := strings.Cut(apiVersion, "/")
	return group == Group || group == GroupCompiled
}

// OwnFinalizer reports whether kcp-operator adds a finalizer. One of them lets it delete a Shard from kcp, and another
// one the permissions of kubeconfigs in workspaces (kcp-operator: pkg/controller/shard,
// pkg/controller/kubeconfig-rbac).
func OwnFinalizer(name string) bool {
	return slices.ContainsFunc([]string{Group, GroupCompiled},
		func(g string) bool { return strings.HasPrefix(name, g+"/") })
}

// KeySecrets returns the Secrets with the private keys of all authorities.
func KeySecrets(rootShard string) []string {
	var out []string
	for _, ca := range []string{"ca", "server-ca", "client-ca", "requestheader-client-ca", "service-account-ca"} {
		out = append(out, rootShard+"-"+ca)
	}
	return out
}
