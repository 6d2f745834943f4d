package topology

import (
	"slices"
	"strings"
)

// FlagOwner is the reason why extraArgs cannot set a flag: kcpctl derives certificates, connections and the place of
// data from what the flag means, so a setup file has it once.
type FlagOwner struct {
	// Field is the field to set instead, relative to the component, or to the setup if it starts with "spec.". It is
	// empty if kcpctl computes the flag.
	Field string
	// Why is the reason why kcpctl computes the flag, and Instead what to do, if something can be done.
	Why, Instead string
}

// ownedFlags is a row of the table of flags that extraArgs cannot set.
type ownedFlags struct {
	kinds []Kind
	// names are the flags, with blanks.
	names string
	FlagOwner
}

// field is the owner of flags that a field of the setup file says.
func field(path string) FlagOwner { return FlagOwner{Field: path} }

// OwnerOf returns the owner of a flag of a kind of component. ok is false for flags that extraArgs can set.
func OwnerOf(k Kind, flag string) (o FlagOwner, ok bool) {
	flag = strings.ReplaceAll(flag, "_", "-") // as kcp reads names
	for _, row := range flagOwners() {
		if slices.Contains(row.kinds, k) && slices.Contains(strings.Fields(row.names), flag) {
			return row.FlagOwner, true
		}
	}
	return FlagOwner{}, false
}

// flagOwners returns the table. Flags for which it has no row can be set in extraArgs, such as those for logs and
// timeouts, and on shards those for tokens: a setup has one authentication for all shards.
func flagOwners() []ownedFlags {
	shards, servers := []Kind{RootShard, Shard}, kindsThat(Kind.Serves)
	stores := append([]Kind{CacheServer}, shards...)
	return slices.Concat(storageFlags(stores, shards), addressFlags(servers, shards), trustFlags(servers, shards),
		tenantFlags(), settingFlags(servers, shards), auditFlags(shards), removedFlags(shards))
}

// settingFlags are about settings of kcp that a setup file has as fields.
func settingFlags(servers, shards []Kind) []ownedFlags {
	profiled := slices.DeleteFunc(slices.Clone(servers), func(k Kind) bool { return k == CacheServer })
	return []ownedFlags{
		{servers, "logging-format", field("logFormat")},
		{profiled, "profiler-address", field("profilerPort")},
		{shards, "authorization-order", field("authorization.order")},
		{shards, "authorization-always-allow-paths", field("authorization.alwaysAllowPaths")},
		{shards, "authorization-webhook-config-file authorization-webhook-version " +
			"authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl",
			field("authorization.webhook")},
		{shards, "enable-home-workspaces home-workspaces-home-creator-groups", field("spec.homeWorkspaces")},
		{shards, "batteries-included", field("spec.batteries")},
		{shards, "anonymous-auth", field("spec.authentication.anonymous")}, // which leaves probes their paths
	}
}

// auditFlags are about events. There is no field for a log in a file, because pods have no volume for it.
func auditFlags(shards []Kind) []ownedFlags {
	var out []ownedFlags
	for _, at := range []struct {
		kinds  []Kind
		prefix string
	}{{shards, ""}, {[]Kind{VirtualWorkspaces}, "spec."}} {
		backend := func(name string) string { return strings.ReplaceAll(backendFlags, "audit-", "audit-"+name+"-") }
		out = append(out, ownedFlags{at.kinds, "audit-policy-file", field(at.prefix + "audit.policy")},
			ownedFlags{at.kinds, backend("log"), field(at.prefix + "audit.log")},
			ownedFlags{at.kinds, backend("webhook") + " audit-webhook-config-file audit-webhook-initial-backoff",
				field(at.prefix + "audit.webhook")})
	}
	return out
}

// backendFlags are the flags that logs and webhooks have.
const backendFlags = "audit-mode audit-batch-buffer-size audit-batch-max-size audit-batch-max-wait " +
	"audit-batch-throttle-enable audit-batch-throttle-qps audit-batch-throttle-burst audit-truncate-enabled " +
	"audit-truncate-max-batch-size audit-truncate-max-event-size"

// removedFlags are flags of kube-apiserver that kcp removes from its own (kcp: pkg/server/options/flags.go), in all
// releases: with one of them, it exits at once.
func removedFlags(shards []Kind) []ownedFlags {
	limits := FlagOwner{Why: "kcp does not have this flag of kube-apiserver: its limits of requests are fixed"}
	admission := FlagOwner{Why: "kcp does not have this flag of kube-apiserver: its admission plugins are fixed",
		Instead: "for rules of your own, create a ValidatingAdmissionPolicy or a webhook in workspaces"}
	apis := FlagOwner{Why: "kcp does not have this flag of kube-apiserver: it always serves the same APIs",
		Instead: "for others, create an APIExport and bind it in workspaces"}
	caches := FlagOwner{Why: "kcp does not have this flag of kube-apiserver", Instead: "set --watch-cache-sizes"}
	other := FlagOwner{Why: "kcp does not have this flag of kube-apiserver"}
	return []ownedFlags{
		{shards, "max-requests-inflight max-mutating-requests-inflight enable-priority-and-fairness request-timeout " +
			"min-request-timeout", limits},
		{shards, "admission-control admission-control-config-file enable-admission-plugins disable-admission-plugins " +
			"default-not-ready-toleration-seconds default-unreachable-toleration-seconds", admission},
		{shards, "runtime-config runtime-config-emulation-forward-compatible emulation-forward-compatible " +
			"min-compatibility-version", apis},
		{shards, "default-watch-cache-size", caches},
		{shards, "advertise-address delete-collection-workers enable-garbage-collector egress-selector-config-file " +
			"enable-aggregator-routing aggregator-reject-forwarding-redirect peer-advertise-ip peer-advertise-port " +
			"peer-ca-file log-text-info-buffer-size log-text-split-stream", other},
	}
}

// storageFlags are about where data is, which kcpctl compares between components, and with the last run.
func storageFlags(stores, shards []Kind) []ownedFlags {
	one := FlagOwner{Why: "a component has all its data in one etcd, and kcpctl compares and backs up only that one"}
	port := FlagOwner{Why: "kcpctl chooses ports that no other component uses"}
	member := FlagOwner{
		Why: "kcpctl decides where members of an etcd have their data, how they reach each other, and " +
			"whom they trust",
		Instead: "for an etcd of your own, set etcd.external",
	}
	return []ownedFlags{
		{shards, "etcd-prefix", field("etcd.external.prefix")},
		{[]Kind{CacheServer}, "etcd-prefix", FlagOwner{Why: "the prefix of a cache server is always /cache"}},
		{stores, "etcd-servers", field("etcd.external.endpoints")},
		{stores, "etcd-cafile etcd-certfile etcd-keyfile", field("etcd.external.tlsSecret")},
		{stores, "etcd-servers-overrides", one},
		{stores, "embedded-etcd-directory", field("etcd.embedded")},
		{stores, "embedded-etcd-client-port embedded-etcd-peer-port", port},
		{[]Kind{Etcd}, "quota-backend-bytes", field("quota")},
		{[]Kind{Etcd}, "auto-compaction-mode auto-compaction-retention", field("autoCompaction")},
		{[]Kind{Etcd}, "name data-dir wal-dir listen-client-urls advertise-client-urls listen-peer-urls " +
			"initial-advertise-peer-urls initial-cluster initial-cluster-state initial-cluster-token " +
			"client-cert-auth client-cert-allowed-hostname peer-cert-allowed-hostname enable-grpc-gateway " +
			"trusted-ca-file cert-file key-file auto-tls peer-client-cert-auth peer-trusted-ca-file peer-cert-file peer-key-file peer-auto-tls",
			member},
	}
}

// addressFlags are about how components reach each other.
func addressFlags(servers, shards []Kind) []ownedFlags {
	dialled := append([]Kind{VirtualWorkspaces}, shards...)
	port := FlagOwner{Why: "Services, probes and other components use the port that kcpctl chooses",
		Instead: "for the port of clients, set spec.external.port"}
	name := FlagOwner{Why: "the name of a shard in kcp is its name in the setup, and root for the root shard"}
	files := FlagOwner{Why: "kcp would write keys and an administrator's token there, and pods of kcpctl have none"}
	return []ownedFlags{
		{servers, "bind-address", field("spec.clusters[].ipFamilies")},
		{servers, "secure-port experimental-bind-free-port", port},
		{shards, "shard-name", name},
		{shards, "shard-base-url", field("url")},
		{shards, "shard-virtual-workspace-url", field("virtualWorkspaceURL")},
		{dialled, "shard-external-url external-hostname", field("spec.external")},
		{shards, "run-virtual-workspaces", field("spec.virtualWorkspaces")},
		{dialled, "cache-kubeconfig cache-server-kubeconfig-file", field("spec.cacheServer")},
		{[]Kind{FrontProxy}, "mapping-file", field("pathMappings")},
		{servers, "root-directory", files},
	}
}

// trustFlags are about certificates, and whom components trust.
func trustFlags(servers, shards []Kind) []ownedFlags {
	proxies := []Kind{FrontProxy}
	virtual := []Kind{VirtualWorkspaces}
	others := slices.DeleteFunc(slices.Clone(servers), func(k Kind) bool { return k == FrontProxy })
	clients := FlagOwner{
		Why: "all components trust the client CAs of the setup, or they would refuse its own certificates",
		Instead: "to trust further CAs, put their certificates into ca/client.bundle of a directory and run kcpctl " +
			"certs import DIR",
	}
	identities := FlagOwner{Why: "front-proxies pass on identities with a certificate that kcpctl issues"}
	authority := FlagOwner{Why: "kcpctl issues the certificates of components, and their clients have the CAs"}
	own := FlagOwner{Why: "components dial each other with certificates and kubeconfigs that kcpctl makes"}
	accounts := FlagOwner{Why: "all shards and front-proxies trust the service-account keys of the setup",
		Instead: "to bring your own, run kcpctl certs import DIR"}
	return []ownedFlags{
		{servers, "client-ca-file", clients},
		{servers, "requestheader-client-ca-file requestheader-allowed-names requestheader-username-headers " +
			"requestheader-group-headers requestheader-extra-headers-prefix", identities},
		{proxies, "tls-cert-file tls-private-key-file tls-sni-cert-key", field("serving")},
		{others, "tls-cert-file tls-private-key-file tls-sni-cert-key", authority},
		{shards, "root-ca-file shard-virtual-workspace-ca-file", authority},
		{shards, "shard-client-cert-file shard-client-key-file logical-cluster-admin-kubeconfig " +
			"root-shard-kubeconfig-file shard-kubeconfig-file", own},
		{append(virtual, shards...), "external-logical-cluster-admin-kubeconfig", own},
		{proxies, "root-kubeconfig shards-kubeconfig", own},
		{virtual, "kubeconfig context authentication-kubeconfig", FlagOwner{Why: own.Why,
			Instead: "for your own server, set kubeconfigSecret"}},
		{append(proxies, shards...), "service-account-key-file", accounts},
		{shards, "service-account-private-key-file service-account-signing-key-file", accounts},
		{proxies, "authentication-drop-groups", field("authentication.dropGroups")},
		{proxies, "authentication-pass-on-groups", field("authentication.passOnGroups")},
	}
}

// tenantFlags are about agents and the controller of workloads, whose permissions kcpctl derives from fields.
func tenantFlags() []ownedFlags {
	agents := []Kind{Agent}
	controllers := []Kind{Workloads}
	own := FlagOwner{Why: "kcpctl makes kubeconfigs, permissions and probes that fit the flag"}
	return []ownedFlags{
		{agents, "namespace agent-name kubeconfig kcp-kubeconfig published-resource-selector enable-leader-election " +
			"metrics-address", own},
		{agents, "apiexportendpointslice-ref", field("apiExport")},
		{controllers, "kubeconfig health-probe-bind-address", own},
		{controllers, "setup-id", FlagOwner{Why: "it is the ID of the installation, under which workloads run"}},
		{controllers, "workspace", field("workspace")},
		{controllers, "workspace-type", field("workspaceType")},
		{controllers, "apis", field("apis")},
	}
}
