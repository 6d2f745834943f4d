package importer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// What the tables say several times.
const (
	ownPKI = "kcpctl issues all certificates itself, without cert-manager"
	ownCA  = "clients trust kcpctl's own authorities, unless you import the ones in use before the first up: kcpctl " +
		"certs import --from-cluster, or DIR"
	onAll  = "kcp-operator has them on one Deployment, and a setup on all its objects"
	ownSAN = "the address of a component is in its certificate: set url or external"
	// otherCA is when a front-proxy serves the certificate of an issuer.
	otherCA = "unless the issuer is a CA of the installation"

	themeSAN    = `([dD]nsNames|[iI]pAddresses|\.sans)`
	themeIssuer = `([iI]ssuerRef|[aA]cme|[vV]ault|[vV]enafi|caSecretRef)`
)

// table has the rows of one kind of object.
type table struct {
	group, kind string
	rows        []row
}

// Groups of the kinds.
const (
	groupOperator    = "operator.kcp.io"
	groupCompiled    = "deploy.operator.kcp.io"
	groupCertManager = "cert-manager.io"
)

// The kinds of kcp-operator.
const (
	kindRootShard        = "RootShard"
	kindShard            = "Shard"
	kindFrontProxy       = "FrontProxy"
	kindCacheServer      = "CacheServer"
	kindVirtualWorkspace = "VirtualWorkspace"
	kindKubeconfig       = "Kubeconfig"
)

// tables returns the tables of all kinds of Kubernetes objects.
func tables() []table {
	return []table{
		{groupOperator, kindRootShard, rootShardRows()},
		{groupOperator, kindShard, shardRows()},
		{groupOperator, kindFrontProxy, frontProxyRows()},
		{groupOperator, kindCacheServer, cacheServerRows()},
		{groupOperator, kindVirtualWorkspace, virtualWorkspaceRows()},
		{groupOperator, kindKubeconfig, kubeconfigRows()},
		{groupCertManager, "Issuer", issuerRows()},
		{groupCertManager, "ClusterIssuer", issuerRows()},
	}
}

// metadataRows returns the rows that every Kubernetes object has.
func metadataRows(name string) []row {
	const serverSide, identity = "the cluster sets it", "import reads the object by it"
	named := mapped("metadata.name", name, nothing)
	if name == "" {
		named = named.noted("other objects refer to it by this name")
	}
	rows := []row{
		mapped("apiVersion", "", nothing).noted(identity), mapped("kind", "", nothing).noted(identity), named,
		mapped("metadata.namespace", "spec.clusters[0].namespace", nothing),
		needless("metadata.labels", "kcp-operator does not pass them on, and kcpctl has labels of its own"),
		mapped("metadata.annotations", "", annotations).noted("with " + bundle + ", the component has a separate " +
			"cluster in spec.clusters; kcp-operator does not pass others on"),
		needless("status", serverSide),
	}
	for _, f := range setup.ClusterMetadata() {
		rows = append(rows, needless("metadata."+f, serverSide))
	}
	return rows
}

// processRows returns the rows of the image, the arguments and the size of a component.
func processRows(prefix string) []row {
	return []row{
		mapped(prefix+"image.repository", "image.repository",
			into(func(o *object) *string { return &o.component.Image.Repository })),
		mapped(prefix+"image.tag", "image.tag", into(func(o *object) *string { return &o.component.Image.Tag })),
		mapped(prefix+"image.imagePullSecrets", "image.pullSecrets",
			pullSecrets(func(o *object) *[]string { return &o.component.Image.PullSecrets })),
		mapped(prefix+"replicas", "replicas",
			into(func(o *object) *v1alpha1.Replicas { return &o.component.Replicas })),
		mapped(prefix+"resources", "resources", resources(self)),
		mapped(prefix+"logging.level", "logLevel", into(func(o *object) **int32 { return &o.component.LogLevel })),
		mapped(prefix+"extraArgs", "extraArgs", extraArgs(self)),
		mapped(prefix+"extraVolumes", "podTemplate.spec.volumes", volumes(self)),
		mapped(prefix+"extraVolumeMounts", "podTemplate.spec.containers[0].volumeMounts", volumeMounts(self)),
	}
}

// templateRows returns the rows of the templates of a component's Deployment, Service and certificates.
func templateRows() []row {
	const deployment, service = "spec.deploymentTemplate.", "spec.serviceTemplate."
	pod := deployment + "spec.template."
	return append([]row{
		mapped(deployment+"metadata.labels", "spec.commonMetadata.labels",
			common(func(m *v1alpha1.CommonMetadata) *map[string]string { return &m.Labels })).but(onAll, ""),
		mapped(deployment+"metadata.annotations", "spec.commonMetadata.annotations",
			common(func(m *v1alpha1.CommonMetadata) *map[string]string { return &m.Annotations })).but(onAll, ""),
		mapped(pod+"metadata.labels", "podTemplate.metadata.labels", podMetadata(self, "labels")),
		mapped(pod+"metadata.annotations", "podTemplate.metadata.annotations", podMetadata(self, "annotations")),
		mapped(pod+"spec.affinity", "podTemplate.spec.affinity", podSpec[corev1.Affinity](self, "affinity")),
		mapped(pod+"spec.nodeSelector", "podTemplate.spec.nodeSelector",
			podSpec[map[string]string](self, "nodeSelector")),
		mapped(pod+"spec.tolerations", "podTemplate.spec.tolerations",
			podSpec[[]corev1.Toleration](self, "tolerations")),
		mapped(pod+"spec.hostAliases", "podTemplate.spec.hostAliases",
			podSpec[[]corev1.HostAlias](self, "hostAliases")).
			but("the aliases may have the IP address of a Service of kcp-operator",
				"remove them if they only name a front-proxy: kcpctl's components dial its Service"),
		mapped(pod+"spec.topologySpreadConstraints", "podTemplate.spec.topologySpreadConstraints",
			podSpec[[]corev1.TopologySpreadConstraint](self, "topologySpreadConstraints")),
		mapped(pod+"spec.imagePullSecrets", "image.pullSecrets",
			pullSecrets(func(o *object) *[]string { return &o.component.Image.PullSecrets })),
		mapped(service+"metadata.labels", "service.metadata.labels", serviceMetadata(self, "labels")),
		mapped(service+"metadata.annotations", "service.metadata.annotations", serviceMetadata(self, "annotations")),
		mapped(service+"spec.type", "service.type", serviceField(self, "type")),
		mapped(service+"spec.clusterIP", "service.clusterIP", serviceField(self, "clusterIP")).
			but("the Service of kcp-operator has this address while it exists",
				"delete it before up, or remove clusterIP"),
	}, certificateRows("spec.certificateTemplates.*.")...)
}

// certificateRows returns the rows of a template of a certificate.
func certificateRows(prefix string) []row {
	const own, size = "kcpctl has no Certificate objects", "for all certificates: set spec.pki.keyAlgorithm"
	return []row{
		needless(prefix+"metadata", own),
		needless(prefix+"spec.secretTemplate", own),
		lost(prefix+"spec.dnsNames", themeSAN, ownPKI, ownSAN),
		lost(prefix+"spec.ipAddresses", themeSAN, ownPKI, ownSAN),
		lost(prefix+"spec.duration", `[dD]uration`, ownPKI,
			"for all certificates: set spec.pki.certificateValidity or spec.pki.caValidity"),
		needless(prefix+"spec.renewBefore", "up renews certificates that expire soon"),
		lost(prefix+"spec.issuerRef", themeIssuer, ownPKI, ownCA),
		lost(prefix+"spec.privateKey.algorithm", `[pP]rivateKey`, ownPKI, size),
		lost(prefix+"spec.privateKey.size", `[pP]rivateKey`, ownPKI, size),
		needless(prefix+"spec.privateKey.encoding", "it depends on the key algorithm"),
		needless(prefix+"spec.privateKey.rotationPolicy", "a renewed certificate always has a new key"),
		lost(prefix+"spec.subject", `\.[sS]ubject`, ownPKI,
			"the subjects of kcpctl's certificates cannot be changed: bind permissions to their users and groups"),
	}
}

// trustRows returns the rows of further authorities that a component trusts.
func trustRows() []row {
	return append([]row{
		lost("spec.caBundleSecretRef", `[bB]undle`, "kcpctl's own authority signs the certificates of all components",
			"clients that also dial servers of other authorities need the certificates of these from you"),
	}, clientTrustRows()...)
}

func clientTrustRows() []row {
	return []row{
		lost("spec.clientCABundleRef", `[cC]lientCA`, "further authorities of clients are part of kcpctl's PKI",
			"kcpctl certs import --from-cluster takes them over if all components have the same; otherwise put their certificates into "+
				"ca/client.bundle of a directory and run kcpctl certs import DIR"),
	}
}

// etcdRows returns the rows of the etcd of a shard or a cache server.
func etcdRows() []row {
	return []row{
		mapped("spec.etcd.endpoints", "etcd.external.endpoints",
			into(func(o *object) *[]string { return &o.etcd.Endpoints })),
		mapped("spec.etcd.prefix", "etcd.external.prefix", into(func(o *object) *string { return &o.etcd.Prefix })).
			noted("except of a cache server, whose prefix is always /cache"),
		mapped("spec.etcd.tlsConfig.secretRef.name", "etcd.external.tlsSecret",
			into(func(o *object) *string { return &o.etcd.TLSSecret })),
	}
}

func domainRow() row {
	return mapped("spec.clusterDomain", "spec.clusters[0].domain", into(func(o *object) *string { return &o.domain }))
}

// externalRows returns the rows of the address of a component, with the fields for its parts.
func externalRows(hostname, port, why string) []row {
	return []row{
		mapped("spec.external.hostname", hostname, into(func(o *object) *string { return &o.external.Hostname })),
		mapped("spec.external.port", port, into(func(o *object) *int32 { return &o.external.Port })),
		needless("spec.external.privateHostname", why), needless("spec.external.privatePort", why),
	}
}

func cacheServerRows() []row {
	const noAuthority = "kcpctl signs the certificates of the cache server with the authorities of the setup"
	return slices.Concat(
		metadataRows(""), etcdRows(), processRows("spec."), templateRows(),
		[]row{
			domainRow(),
			needless("spec.certificates.caSecretRef", noAuthority),
			needless("spec.certificates.issuerRef", noAuthority),
		},
	)
}

func virtualWorkspaceRows() []row {
	const served = "the shard that refers to the server: import does not map a server to which none refers"
	return slices.Concat(
		metadataRows("name"), processRows("spec."), templateRows(), trustRows(),
		externalRows("url", "url", "kcp-operator ignores it here"),
		[]row{
			domainRow(),
			mapped("spec.target.rootShardRef.name", "shard", refer(refRootShard)).noted(served),
			mapped("spec.target.shardRef.name", "shard", refer(refShard)).noted(served),
			mapped("spec.command", "command", into(func(o *object) *[]string { return &o.custom.Command })),
			lost("spec.initContainers", `[iI]nitContainer`,
				"the setup file has no field for containers that prepare a server",
				"run what they do as a Job, or add them to podTemplate.spec.initContainers"),
			mapped("spec.kubeconfigSecretRef.name", "kubeconfigSecret",
				into(func(o *object) *string { return &o.custom.KubeconfigSecret })).noted(
				"kcpctl writes the kubeconfig of a server without a command"),
		},
	)
}

func kubeconfigRows() []row {
	const bindings = "spec.authorization.clusterRoleBindings."
	return slices.Concat(
		metadataRows("name"), certificateRows("spec.certificateTemplate."),
		[]row{
			mapped("spec.username", "user", into(func(o *object) *string { return &o.kubeconfig.User })),
			mapped("spec.groups", "groups", into(func(o *object) *[]string { return &o.kubeconfig.Groups })),
			mapped("spec.validity", "validity",
				into(func(o *object) *metav1.Duration { return &o.kubeconfig.Validity })),
			mapped("spec.targetWorkspace", "workspace",
				into(func(o *object) *string { return &o.kubeconfig.Workspace })),
			mapped(bindings+"cluster", "workspace", into(func(o *object) *string { return &o.kubeconfig.Workspace })).
				but("the kubeconfig of kcp-operator has permissions in this workspace, and its URL is that of root",
					"in a setup, both are the same workspace: clients that use the URL of root need its path"),
			mapped(bindings+"clusterRoles", "clusterRoles",
				into(func(o *object) *[]string { return &o.kubeconfig.ClusterRoles })),
			mapped("spec.target.rootShardRef.name", "target.shard", refer(refRootShard)),
			mapped("spec.target.shardRef.name", "target.shard", refer(refShard)),
			mapped("spec.target.frontProxyRef.name", "target.frontProxy", refer(refFrontProxy)),
			lost("spec.secretRef", `spec\.kubeconfigs\[\]\.secret`, "kcpctl chooses the name of the Secret",
				"change what reads the Secret, or write the kubeconfig to a file: kcpctl kubeconfig"),
		},
	)
}

// issuerRows returns the rows of cert-manager's issuers.
func issuerRows() []row {
	const theirs = "a FrontProxy whose certificate it signs has serving, and the issuer stays"
	rows := append(metadataRows(""),
		needless("spec.selfSigned", ownPKI),
		lost("spec.ca", themeIssuer, ownPKI, ownCA),
	)
	for _, f := range []string{"acme", "vault", "venafi"} {
		rows = append(rows, lost("spec."+f, themeIssuer, ownPKI, theirs))
	}
	return rows
}
