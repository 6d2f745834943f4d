package importer

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

const (
	chart    = "chart kcp"
	noInline = "the setup file contains no secrets"

	// fieldOperator is the field for objects of the Prometheus operator.
	fieldOperator = "spec.monitoring.prometheusOperator"

	pathEtcd    = "etcd.enabled"
	pathIngress = "kcpFrontProxy.ingress.enabled"
	pathGateway = "kcpFrontProxy.gateway.enabled"
	pathRoute   = "kcpFrontProxy.openshiftRoute.enabled"
	pathTokens  = "kcp.tokenAuth.enabled"
)

// chartRows returns the rows of the values of the chart kcp.
func chartRows() []row {
	return slices.Concat(
		[]row{
			mapped("global.imagePullSecrets", "spec.image.pullSecrets",
				pullSecrets(func(o *object) *[]string { return &o.component.Image.PullSecrets })),
			mapped("externalHostname", "spec.external.hostname",
				into(func(o *object) *string { return &o.external.Hostname })),
			mapped("externalPort", "spec.external.port", number(func(o *object) *int32 { return &o.external.Port })),
			needless("nameOverride",
				"the name of the release is not in the values: set the name of the setup with --name"),
			mapped("fullnameOverride", "metadata.name", nothing),
		},
		chartEtcdRows(), chartServerRows(), chartProxyRows(), chartAuthRows(), chartAuditRows(), chartCertificateRows(),
		deprecatedChartRows(),
	)
}

// chartPodRows returns the rows that the pods of all components have.
func chartPodRows(prefix, to string, who at) []row {
	pod := to + "podTemplate.spec."
	container := to + "podTemplate.spec.containers[0]."
	return []row{
		mapped(prefix+"nodeSelector", pod+"nodeSelector", podSpec[map[string]string](who, "nodeSelector")),
		mapped(prefix+"tolerations", pod+"tolerations", podSpec[[]corev1.Toleration](who, "tolerations")),
		mapped(prefix+"affinity", pod+"affinity", podSpec[corev1.Affinity](who, "affinity")),
		mapped(prefix+"priorityClassName", pod+"priorityClassName", podSpec[string](who, "priorityClassName")),
		mapped(prefix+"podSecurityContext", pod+"securityContext", podSecurity(who, false)),
		mapped(prefix+"containerSecurityContext", container+"securityContext",
			containerField[corev1.SecurityContext](who, "securityContext")),
		mapped(prefix+"resources", to+"resources", resources(who)),
		mapped(prefix+"monitoring.serviceMonitor.enabled", fieldOperator, monitored),
		needless(prefix+"podDisruptionBudget", "kcpctl creates one for each component with several replicas"),
	}
}

// chartProcessRows returns the rows that kcp and the front-proxy have.
func chartProcessRows(prefix, to string, who at) []row {
	component := func(o *object) *v1alpha1.Component { return &who(o).component }
	gate := prefix + "hostAliases.enabled"
	return slices.Concat(chartPodRows(prefix, to, who), []row{
		mapped(prefix+"replicas", to+"replicas",
			into(func(o *object) *v1alpha1.Replicas { return &component(o).Replicas })),
		needless(prefix+"strategy", "kcpctl replaces pods one at a time"),
		mapped(prefix+"image", to+"image.repository",
			into(func(o *object) *string { return &component(o).Image.Repository })),
		mapped(prefix+"tag", to+"image.tag", into(func(o *object) *string { return &component(o).Image.Tag })),
		mapped(prefix+"pullPolicy", to+"image.pullPolicy",
			into(func(o *object) *corev1.PullPolicy { return &component(o).Image.PullPolicy })),
		mapped(prefix+"v", to+"logLevel", verbosity(who)),
		mapped(prefix+"extraFlags", to+"extraArgs", extraArgs(who)),
		mapped(prefix+"securityContext", to+"podTemplate.spec.securityContext", podSecurity(who, true)),
		mapped(prefix+"extraVolumes", to+"podTemplate.spec.volumes", volumes(who)),
		mapped(prefix+"extraVolumeMounts", to+"podTemplate.spec.containers[0].volumeMounts", volumeMounts(who)),
		mapped(gate, "", nothing).noted("turns " + prefix + "hostAliases.values on"),
		mapped(prefix+"profiling.enabled", to+"profilerPort", profiler(who)),
	}, when(prefix+"profiling.enabled", mapped(prefix+"profiling.port", to+"profilerPort",
		number(func(o *object) *int32 { return &component(o).ProfilerPort }))), when(gate,
		mapped(prefix+"hostAliases.values", to+"podTemplate.spec.hostAliases",
			podSpec[[]corev1.HostAlias](who, "hostAliases")).
			but("the aliases may have the IP address of a Service of the chart",
				"remove them if they only name the front-proxy: kcpctl's components dial its Service"),
	))
}

func chartServerRows() []row {
	const root = "spec.rootShard."
	const clientSecret = "create a Secret with ca.crt, tls.crt and tls.key, and set etcd.external.tlsSecret"
	const tokenFile, themeIdentity = "spec.authentication.tokenFile", `[rR]ootIdentit`
	const onlyOnce = "identities are read only when kcp starts for the first time"
	const mountIt = "for a new kcp, mount the file with podTemplate and set --root-identities-file in extraArgs"
	return slices.Concat(chartProcessRows("kcp.", root, self), []row{
		needless("kcp.logicalClusterAdminFlag", "kcpctl knows which flags a release has").unless("true"),
		needless("kcp.externalLogicalClusterAdminFlag", "kcpctl knows which flags a release has").unless("true"),
		mapped("kcp.batteries", "spec.batteries", batteries),
		lost("kcp.leaderElection.enabled", `[lL]eader`, "kcpctl decides it by the etcd",
			"set --enable-leader-election=false in extraArgs").unless("true"),
		mapped("kcp.podAnnotations", root+"podTemplate.metadata.annotations", podMetadata(self, "annotations")),
		mapped("kcp.authorization.webhook.secretName", root+"authorization.webhook.secret",
			into(func(o *object) *string { return &o.authorizationWebhook().Secret })),
		mapped("kcp.homeWorkspaces.enabled", "spec.homeWorkspaces.enabled",
			into(func(o *object) **bool { return &o.home.Enabled })),
		mapped("kcp.etcd.serverAddress", root+"etcd.external.endpoints", serverAddress),
		lost("kcp.etcd.clientCertificate.issuer", `etcd.*[cC]lientCert`,
			"the Certificate of the chart is deleted with its release", clientSecret),
		lost("kcp.etcd.clientCertificate.commonName", `etcd.*[cC]lientCert`,
			"the Certificate of the chart is deleted with its release", clientSecret).unless("root"),
		mapped(pathTokens, tokenFile, nothing), lost("development.rootIdentities.enabled", themeIdentity, onlyOnce,
			mountIt),
	}, when(pathTokens,
		mapped("kcp.tokenAuth.fileName", tokenFile+".key", text(func(o *object) *string { return &o.tokenKey })),
		mapped("kcp.tokenAuth.config", tokenFile, nothing).but(noInline,
			"put the lines into the Secret that "+tokenFile+" names"),
	), when("development.rootIdentities.enabled",
		lost("development.rootIdentities.fileName", themeIdentity, onlyOnce, mountIt).unless("root-identities.yaml"),
		lost("development.rootIdentities.existingSecret", themeIdentity, onlyOnce, mountIt),
		lost("development.rootIdentities.identities", themeIdentity, onlyOnce, mountIt),
	))
}

func chartEtcdRows() []row {
	const to = "spec.rootShard.etcd.managed."
	managed := func(o *object) *v1alpha1.ManagedEtcd { return &o.managed }
	return slices.Concat([]row{mapped(pathEtcd, "spec.rootShard.etcd", nothing)},
		when(pathEtcd, slices.Concat(
			chartPodRows("etcd.", to, members), []row{
				mapped("etcd.image", to+"image",
					into(func(o *object) *string { return &o.members.component.Image.Repository })),
				mapped("etcd.tag", to+"image", into(func(o *object) *string { return &o.members.component.Image.Tag })),
				mapped("etcd.volumeSize", to+"storage",
					into(func(o *object) **resource.Quantity { return &managed(o).Storage })),
				mapped("etcd.storageClassName", to+"storageClassName",
					into(func(o *object) *string { return &managed(o).StorageClassName })),
				mapped("etcd.profiling.enabled", to+"extraArgs", switchOn("enable-pprof", members)),
			})...))
}

func chartProxyRows() []row {
	const to, path = "spec.frontProxies[0].", "kcpFrontProxy."
	const expose = to + "expose"
	rows := slices.Concat(chartProcessRows(path, to, proxy), []row{
		needless(path+"shardsKubeConfigFlag", "kcpctl knows which flags a release has").unless("true"),
		mapped(path+"service.annotations", to+"service.metadata.annotations", serviceMetadata(proxy, "annotations")),
		mapped(path+"service.type", to+"service.type", serviceField(proxy, "type")),
		mapped(path+"service.clusterIP", to+"service.clusterIP", serviceField(proxy, "clusterIP")).
			but("the Service of the chart has this address while it exists",
				"delete it before up, or remove clusterIP"),
		mapped(path+"service.loadBalancerIP", to+"service.loadBalancerIP", serviceField(proxy, "loadBalancerIP")),
		mapped(path+"service.loadBalancerClass", to+"service.loadBalancerClass",
			serviceField(proxy, "loadBalancerClass")),
		mapped(path+"service.nodePort", to+"service.ports", number(func(o *object) *int32 { return &o.nodePort })),
		needless(path+"service.port", "the port of the Service is that of spec.external"),
		mapped(path+"certificateIssuer", to+"serving", servedBy(proxy)).noted(otherCA),
		mapped(path+"additionalPathMappings", to+"pathMappings", pathMappings(proxy)),
		lost(path+"extraDNSNames", themeSAN, ownPKI, ownSAN),
		mapped(pathRoute, expose, nothing), mapped(pathIngress, expose, nothing), mapped(pathGateway, expose, nothing),
	})
	rows = append(rows, when(pathIngress,
		mapped(path+"ingress.ingressClassName", expose+".className",
			into(func(o *object) *string { return &o.proxy.component.Expose.ClassName })),
		mapped(path+"ingress.annotations", expose+".annotations",
			into(func(o *object) *map[string]string { return &o.proxy.component.Expose.Annotations })),
		needless(path+"ingress.secret", "the Ingress passes TLS through, and the front-proxy has the certificate"))...)
	return append(rows, when(pathGateway, lost(path+"gateway.className", `[gG]atewayClass`,
		"kcpctl creates a TLSRoute, and no Gateway",
		"create a Gateway of this class, with a listener that has the protocol TLS and the mode Passthrough, and "+
			"name it in expose.gateway"))...)
}

// chartAuthRows returns the rows of authentication, which is the same for kcp and the front-proxy.
func chartAuthRows() []row {
	const to, flags = "spec.authentication.oidc.", "spec.rootShard.extraArgs"
	oidcText := func(name, field string, of func(*v1alpha1.OIDC) *string) row {
		return mapped("oidc."+name, to+field, text(func(o *object) *string { return of(o.oidc()) }))
	}
	return append([]row{
		mapped("oidc.enabled", "", nothing).noted("turns the other values of oidc on"),
		mapped("authentication.configMapRef.name", flags, keep(func(o *object) *value { return &o.authConfig })),
	}, when("oidc.enabled",
		oidcText("issuerUrl", "issuerURL", func(o *v1alpha1.OIDC) *string { return &o.IssuerURL }),
		oidcText("clientId", "clientID", func(o *v1alpha1.OIDC) *string { return &o.ClientID }),
		oidcText("groupClaim", "groupsClaim", func(o *v1alpha1.OIDC) *string { return &o.GroupsClaim }),
		oidcText("groupsPrefix", "groupsPrefix", func(o *v1alpha1.OIDC) *string { return &o.GroupsPrefix }),
		oidcText("usernameClaim", "usernameClaim", func(o *v1alpha1.OIDC) *string { return &o.UsernameClaim }),
		oidcText("usernamePrefix", "usernamePrefix", func(o *v1alpha1.OIDC) *string { return &o.UsernamePrefix }),
		mapped("oidc.caSecretName", to+"caFrom", text(func(o *object) *string { return &o.oidcCASecret })),
		mapped("oidc.caSecretKeyName", to+"caFrom", text(func(o *object) *string { return &o.oidcKey })))...)
}

func chartCertificateRows() []row {
	const email = "kcpctl's front-proxies have certificates of its own authority"
	const trust = "keep the issuer, create a Certificate for the hostname, and set serving of the front-proxy"
	return append([]row{
		lost("letsEncrypt.enabled", themeIssuer, email, trust),
		mapped("certificates.privateKeys.algorithm", "spec.pki.keyAlgorithm",
			text(func(o *object) *string { return &o.algorithm })),
		mapped("certificates.privateKeys.size", "spec.pki.keyAlgorithm",
			text(func(o *object) *string { return &o.keySize })),
		lost("certificates.subject", `\.[sS]ubject`, ownPKI, "the subjects of kcpctl's certificates cannot be changed"),
		lost("certificates.dnsNames", themeSAN, ownPKI, ownSAN).unless("localhost"),
		lost("certificates.ipAddresses", themeSAN, ownPKI, ownSAN),
	}, when("letsEncrypt.enabled", lost("letsEncrypt.staging", themeIssuer, email,
		trust), lost("letsEncrypt.production", themeIssuer, email, trust))...)
}

// deprecatedChartRows returns the rows of the values by which the deprecated charts shard, cache, proxy and
// certificates are known.
func deprecatedChartRows() []row {
	const why = "a value of the deprecated charts shard, cache, proxy and certificates, which import does not read"
	const instead = "write the setup file by hand: kcpctl init"
	var rows []row
	for _, f := range []string{"sharding", "cache", "externalCache", "caBundle", "certificates.name"} {
		rows = append(rows, mapped(f, "", func(v value) { v.fail(why, instead) }).noted(why+": "+instead))
	}
	return rows
}

// number maps a whole number, which a chart may also have as text. It ignores empty text.
func number(to func(*object) *int32) func(value) {
	return func(v value) {
		if v.node.Kind == yaml.ScalarNode && v.node.Value == "" {
			return
		}
		n := *v.node
		if n.Kind == yaml.ScalarNode {
			n.Tag = ""
			n.Style = 0
		}
		into(to)(value{o: v.o, file: v.file, key: v.key, node: &n, at: v.at})
	}
}

// maxLogLevel is the highest log level that a setup file can have.
const maxLogLevel = 10

// verbosity maps the log level, which is text in the chart. A level that a setup file cannot have remains a flag.
func verbosity(who at) func(value) {
	return func(v value) {
		n, err := strconv.ParseInt(v.node.Value, 10, 32)
		if err != nil || n < 0 || n > maxLogLevel {
			flag("v", who)(v)
			return
		}
		who(v.o).component.LogLevel = new(int32(n))
	}
}

// text maps a single value as text.
func text(to func(*object) *string) func(value) {
	return func(v value) { *to(v.o) = v.node.Value }
}

func serverAddress(v value) {
	var list string
	if v.decode(&list) && list != "" {
		v.o.etcd.Endpoints = strings.Split(list, ",")
	}
}

func batteries(v value) {
	var list []string
	if v.decode(&list) && !v.o.setBatteries(list) {
		v.find(NotMapped, "the batteries admin and user write keys into files of the pod",
			"run kcpctl kubeconfig")
	}
}

// monitored maps whether a Prometheus reads the metrics of a component. With kcpctl, it reads all metrics.
func monitored(v value) {
	var on bool
	if v.decode(&on) && on {
		v.o.monitored = true
	}
}

// profiler maps whether there is a profiler. Its port has a default in the chart.
func profiler(who at) func(value) {
	return func(v value) {
		var on bool
		if !v.decode(&on) || !on {
			return
		}
		c := &who(v.o).component
		c.ProfilerPort = cmp.Or(c.ProfilerPort, 6060)
		if who(v.o) == v.o {
			v.find(Review, "all pods reach the profiler of kcp in the chart, and with kcpctl only the pod itself does",
				"use kubectl port-forward")
		}
	}
}

// switchOn maps a boolean to a flag that is off by default.
func switchOn(name string, who at) func(value) {
	return func(v value) {
		var on bool
		if v.decode(&on) && on {
			who(v.o).arg(v, name, "true")
		}
	}
}
