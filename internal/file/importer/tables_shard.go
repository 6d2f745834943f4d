package importer

import (
	"net"
	"slices"
	"strconv"
	"strings"
)

func rootShardRows() []row {
	rows := slices.Concat(
		withUID(metadataRows("metadata.name")), commonShardRows(),
		[]row{
			mapped("spec.external.hostname", "spec.external.hostname",
				into(func(o *object) *string { return &o.external.Hostname })),
			mapped("spec.external.port", "spec.external.port",
				into(func(o *object) *int32 { return &o.external.Port })),
			lost("spec.certificates.caSecretRef", themeIssuer, ownPKI, ownCA),
			lost("spec.certificates.issuerRef", themeIssuer, ownPKI, ownCA),
		},
	)
	const private = "kcpctl's components dial the Service of a front-proxy on their cluster"
	rows = append(rows,
		needless("spec.external.privateHostname", private), needless("spec.external.privatePort", private),
		needless("spec.cache.embedded",
			"the root shard has an embedded cache server, unless the setup has a cacheServer"))
	for _, f := range []string{
		"certificateTemplates", "deploymentTemplate", "extraArgs", "extraVolumeMounts", "extraVolumes", "image",
		"logging", "replicas",
		"resources", "serviceTemplate",
	} {
		rows = append(rows, needless("spec.proxy."+f,
			"kcp-operator connects to shards through this proxy, and kcpctl needs none"))
	}
	return rows
}

// withUID returns the rows of the metadata of an object whose UID says which installation a setup takes over.
func withUID(rows []row) []row {
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.path == "metadata.uid" })
	return append(rows, mapped("metadata.uid", "spec.takeOver.uid", into(func(o *object) *string { return &o.uid })))
}

// oneRoot is why a component does not name its root shard.
const oneRoot = "a setup has one root shard"

func shardRows() []row {
	return slices.Concat(metadataRows("name"), commonShardRows(), []row{
		mapped("spec.rootShard.ref.name", "", refer(refRootShard)).noted(oneRoot),
	})
}

// commonShardRows returns the rows of the fields that root shards and other shards have.
func commonShardRows() []row {
	return slices.Concat(
		etcdRows(), processRows("spec."), templateRows(), trustRows(), auditRows(),
		authorizationRows(), shardAuthRows(),
		[]row{
			domainRow(),
			mapped("spec.shardBaseURL", "url", into(func(o *object) *string { return &o.url })),
			mapped("spec.cache.ref.name", "spec.cacheServer", refer(refCacheServer)),
			mapped("spec.kcpVirtualWorkspace.name", "spec.virtualWorkspaces", refer(refVirtualWorkspace)),
		},
	)
}

// flagRows returns rows of single values, each for a flag.
func flagRows(prefix, flagPrefix string, fields [][2]string) []row {
	var rows []row
	for _, f := range fields {
		rows = append(rows, mapped(prefix+f[0], "extraArgs", flag(flagPrefix+f[1])))
	}
	return rows
}

func oidcCA(key string) mountedFile {
	return mountedFile{flag: "oidc-ca-file", volume: "oidc-ca-file", key: key}
}

func frontProxyRows() []row {
	return slices.Concat(
		metadataRows("name"), processRows("spec."), templateRows(), clientTrustRows(), frontProxyAuthRows(),
		externalRows("external.hostname", "external.port", "kcp-operator ignores it here"),
		withoutIssuer(certificateRows("spec.certificateTemplates.server.")),
		[]row{
			mapped("spec.externalHostname", "external", hostAndPort),
			mapped("spec.rootShard.ref.name", "", refer(refRootShard)).noted(oneRoot),
			mapped("spec.additionalPathMappings", "pathMappings", pathMappings(self)),
			mapped("spec.certificateTemplates.server.spec.issuerRef", "serving", servedBy(self)).noted(otherCA),
			mapped("spec.caBundleSecretRef.name", "serving.ca",
				keep(func(o *object) *value { return &o.caBundle })).
				noted("if serving is set, and the input has the Secret"),
		},
	)
}

// hostAndPort maps the deprecated external address of a front-proxy, a hostname with an optional port.
func hostAndPort(v value) {
	var text string
	if !v.decode(&text) || text == "" {
		return
	}
	v.o.external.Hostname = text
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		v.fail("the port must be a number", "")
		return
	}
	v.o.external.Hostname, v.o.external.Port = host, int32(n)
}

// withoutIssuer returns the rows of a certificate without the row of its issuer.
func withoutIssuer(rows []row) []row {
	return slices.DeleteFunc(rows, func(r row) bool { return strings.HasSuffix(r.path, ".issuerRef") })
}
