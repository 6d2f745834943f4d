package importer

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// What the chart kcp sets if a value is not set (chart kcp 0.16: values.yaml and templates).
const (
	chartName             = "kcp"
	chartFrontProxy       = "main"
	chartEtcdImage        = "quay.io/coreos/etcd"
	chartEtcdTag          = "v3.5.28"
	chartEtcdReplicas     = 3
	chartPort             = 443
	chartLoadBalancerPort = 8443
	chartTokenFile        = "auth-token.csv"
)

// chart makes the setup of the values of the chart kcp.
func (a *assembly) chart(o *object) {
	a.root = o
	spec := &a.setup.Spec
	o.prefix = "spec.rootShard"
	o.proxy.prefix = "spec.frontProxies[0]"
	o.members.prefix = "spec.rootShard.etcd.managed"
	a.setup.Metadata.Name = cmp.Or(a.reader.options.Name, scalar(o.root, "fullnameOverride"), chartName)
	if ns := cmp.Or(a.reader.namespace, a.reader.options.Namespace); ns != "" {
		spec.Clusters = []v1alpha1.Cluster{{Name: "default", Namespace: ns}}
	} else {
		o.find(Review, "values have no namespace, so the setup has the default, kcp",
			"name the namespace of the release with --namespace")
	}
	a.flags()
	a.chartDefaults(o)
	a.chartExpose(o)
	a.chartExternal(o)
	a.chartTokens(o)
	spec.PKI.KeyAlgorithm = o.chartKeys()
	spec.Image.PullSecrets, o.component.Image.PullSecrets = o.component.Image.PullSecrets, nil
	if o.component.Image.Repository == o.proxy.component.Image.Repository {
		spec.Image.Repository = o.component.Image.Repository
	}
	o.chartTags(a.reader.chart)
	spec.RootShard = v1alpha1.RootShard{ShardSpec: v1alpha1.ShardSpec{Component: o.component, Etcd: a.chartEtcd(o),
		URL: o.url, VirtualWorkspaceURL: o.virtualWorkspaceURL, Audit: o.audited(),
		Authorization: o.authorized()}}
	spec.HomeWorkspaces = o.home
	spec.Batteries = o.batteries
	spec.FrontProxies = []v1alpha1.FrontProxy{{
		Name: chartFrontProxy, Component: o.proxy.component, Authentication: o.proxy.auth,
		Serving:      a.serving(o.proxy, a.setup.Metadata.Name),
		PathMappings: o.proxy.mappings(),
	}}
	a.release("spec.rootShard.image.tag")
	a.chartMonitoring(o)
	a.mounts()
}

// chartDefaults sets the defaults of the chart that differ from kcpctl's, except log levels and resources.
func (a *assembly) chartDefaults(o *object) {
	const why = "The default of the chart."
	a.setup.Spec.Defaults.LogFormat = "json"
	o.comment("spec.defaults.logFormat", why)
	if o.home.Enabled == nil {
		o.home.Enabled = new(false)
		o.comment("spec.homeWorkspaces.enabled", why)
	}
}

// chartTags sets the releases that the values do not say, if the version of the chart says them. Otherwise it reports
// them.
func (o *object) chartTags(version chartVersion) {
	root := &o.component.Image.Tag
	proxy := &o.proxy.component.Image.Tag
	released := version.release()
	switch {
	case *root != "" && *proxy != "":
	case released != "":
		*root = cmp.Or(*root, released)
		*proxy = cmp.Or(*proxy, released)
		o.comment("spec.version", "The release in version "+version.text+" of the chart.")
	case version.text != "":
		version.from.find(Review, fmt.Sprintf(
			"the values do not set kcp.tag and kcpFrontProxy.tag, and kcpctl does not know the release of kcp in "+
				"version %s of the chart: the setup has %s", version.text, cmp.Or(*root, *proxy, release.Default)),
			"set spec.version to the release that runs: kubectl get deployments -o wide")
	case *root == "" && *proxy == "":
		o.find(Review, "kcp.tag is not set: the setup has the default release of kcpctl, "+release.Default+
			", and each version of the chart has another one",
			"set spec.version to the release that runs: kubectl get deployments -o wide")
	default:
		o.find(Review, "only one of kcp.tag and kcpFrontProxy.tag is set, and the chart has a default for the other",
			"set spec.version and the image tags to the releases in use")
	}
}

// chartMonitoring sets how a Prometheus reads metrics, if the release can.
func (a *assembly) chartMonitoring(o *object) {
	switch version := cmp.Or(a.setup.Spec.Version, release.Default); {
	case !o.monitored:
	case release.Of(version).MetricsReader:
		a.setup.Spec.Monitoring = &v1alpha1.Monitoring{PrometheusOperator: &v1alpha1.PrometheusOperator{}}
	default:
		o.from(fieldOperator).find(NotMapped,
			"with kcp "+version+", only administrators can read the metrics of shards",
			"set "+fieldOperator+" after an upgrade to kcp v0.32.0")
	}
}

// chartExternal sets the address for clients, and the Service of the front-proxy.
func (a *assembly) chartExternal(o *object) {
	kind, _ := o.proxy.component.Service["type"].(string)
	if o.external.Port == 0 {
		o.external.Port = chartPort
		if kind == "LoadBalancer" {
			o.external.Port = chartLoadBalancerPort
		}
	}
	if o.external.Hostname == "" {
		o.find(Review, "externalHostname is not set, which the chart requires",
			"set spec.external.hostname, or clients outside of the cluster cannot connect")
		o.external = v1alpha1.External{}
	}
	if o.nodePort != 0 {
		c := o.proxy.component
		port := topology.ServicePort(topology.FrontProxy, cmp.Or(c.Expose.Type, v1alpha1.ExposeClusterIP),
			[]v1alpha1.Overlay{c.Service}, o.external.Port)
		o.proxy.service()["ports"] = []any{map[string]any{"port": int64(port), "nodePort": int64(o.nodePort)}}
	}
	a.setup.Spec.External = o.external
}

// chartTokens sets the authentication of tokens, which is the same for kcp and the front-proxy.
func (a *assembly) chartTokens(o *object) {
	if o.authConfig.node != nil {
		a.chartIssuers(o)
	}
	if o.on(pathTokens) {
		o.auth.TokenFile = &v1alpha1.SecretKey{Secret: a.setup.Metadata.Name + "-tokens", Key: cmp.Or(o.tokenKey,
			chartTokenFile)}
		o.find(Review, "the chart makes the Secret with the tokens of kcp.tokenAuth, and deletes it with its release",
			fmt.Sprintf("create the Secret %s with the key %s before up", o.auth.TokenFile.Secret,
				o.auth.TokenFile.Key))
	}
	if o.auth.TokenAuthentication == (v1alpha1.TokenAuthentication{}) {
		return
	}
	if o.auth.OIDC != nil && o.oidcCASecret != "" {
		o.auth.OIDC.CAFrom = &v1alpha1.KeyReference{Secret: o.oidcCASecret, Key: cmp.Or(o.oidcKey, "tls.crt")}
	}
	a.everywhere(o, o.auth.TokenAuthentication)
}

// chartIssuers sets the issuers of the ConfigMap that the values name. If it is not in the input, kcp gets it as a
// file.
func (a *assembly) chartIssuers(o *object) {
	if o.auth.OIDC != nil {
		o.from("spec.authentication.oidc.issuerURL").find(NotNeeded,
			"authentication.configMapRef.name takes precedence over oidc", "")
		o.auth.OIDC = nil
	}
	const key = "config.yaml"
	if content := a.content("ConfigMap", o.authConfig.node.Value, key); content != "" {
		if config := issuersOf(content); config != nil {
			o.auth.Config = config
			return
		}
	}
	mountedFile{
		flag: "authentication-config", volume: "authentication-config", key: key, configMap: true,
	}.named(self, proxy)(o.authConfig)
	o.find(NotMapped, "the front-proxy of the chart accepts service-account tokens, and that of kcpctl, if a flag "+
		"configures issuers, does not",
		"import the ConfigMap together with the values, or write its issuers into spec.authentication.config, with "+
			"mode Everywhere, and remove the flag")
}

// chartExpose sets how the front-proxy is reached.
func (a *assembly) chartExpose(o *object) {
	expose := &o.proxy.component.Expose
	for _, way := range []struct {
		path string
		as   v1alpha1.ExposeType
	}{{pathRoute, v1alpha1.ExposeRoute}, {pathIngress, v1alpha1.ExposeIngress}, {pathGateway,
		v1alpha1.ExposeTLSRoute}} {
		switch {
		case !o.on(way.path):
		case expose.Type != "":
			o.find(NotMapped, fmt.Sprintf("a front-proxy is exposed in one way, %s, and %s also adds a %s", expose.Type,
				way.path, way.as),
				"add the other object yourself, for the Service of the front-proxy")
		default:
			expose.Type = way.as
		}
	}
	if expose.Type == v1alpha1.ExposeTLSRoute {
		expose.Gateway.Name = a.setup.Metadata.Name + "-gateway"
		o.find(Review, "the Gateway of the chart is deleted with its release",
			"create a Gateway with a listener that has the protocol TLS and the mode Passthrough, and name it in "+
				"frontProxies[0].expose.gateway")
	}
	if expose.Type != v1alpha1.ExposeIngress {
		expose.ClassName = ""
		expose.Annotations = nil
	}
}

func (o *object) chartKeys() v1alpha1.KeyAlgorithm {
	if o.algorithm == "" && o.keySize == "" {
		return ""
	}
	want := cmp.Or(o.algorithm, "RSA") + "-" + cmp.Or(o.keySize, "2048")
	for _, known := range []v1alpha1.KeyAlgorithm{
		v1alpha1.KeyRSA2048, v1alpha1.KeyRSA4096, v1alpha1.KeyECDSAP256, v1alpha1.KeyECDSAP384,
	} {
		if want == strings.ReplaceAll(string(known), "-P", "-") {
			return known
		}
	}
	o.from("spec.pki.keyAlgorithm").find(NotMapped, fmt.Sprintf("kcpctl has no keys of %s with %s bits",
		cmp.Or(o.algorithm, "RSA"), cmp.Or(o.keySize, "2048")),
		"choose another algorithm in spec.pki.keyAlgorithm")
	return ""
}

// chartEtcdSecret sets the Secret with the files for an etcd, unless flags say it.
func (a *assembly) chartEtcdSecret(o *object) {
	if o.etcd.TLSSecret != "" {
		return
	}
	o.etcd.TLSSecret = cmp.Or(scalar(o.root, "fullnameOverride"), a.setup.Metadata.Name) + "-etcd-client-cert"
	o.comment("spec.rootShard.etcd.external.tlsSecret",
		"The name of the chart's Secret begins with that of the release. Replace it by one that stays.")
}

// chartEtcd returns the etcd of the shard: the etcd that the values name, which kcp of the chart uses also if the chart
// has one, or three new members.
func (a *assembly) chartEtcd(o *object) *v1alpha1.Etcd {
	if !o.on(pathEtcd) || len(o.etcd.Endpoints) > 0 {
		if len(o.etcd.Endpoints) == 0 {
			o.fail("required: kcp.etcd.serverAddress, because etcd.enabled is false", "")
		}
		if o.etcd.Prefix == "" {
			o.etcd.Prefix = registry
			o.comment("spec.rootShard.etcd.external.prefix",
				"The chart sets no prefix: the data is below "+registry+".")
		}
		if len(o.etcd.Endpoints) > 0 && strings.HasPrefix(o.etcd.Endpoints[0], "https:") {
			a.chartEtcdSecret(o)
		}
		return externalEtcd(o)
	}
	m := &o.managed
	c := &o.members.component
	replicas := int32(chartEtcdReplicas)
	m.Replicas = &replicas
	m.Resources = c.Resources
	m.PodTemplate = c.PodTemplate
	m.ExtraArgs = c.ExtraArgs
	if c.Image.Repository != "" || c.Image.Tag != "" {
		m.Image = cmp.Or(c.Image.Repository, chartEtcdImage) + ":" + cmp.Or(c.Image.Tag, chartEtcdTag)
	}
	o.find(Review, "up creates a new, empty etcd: the etcd of the chart stays as it is",
		"to keep the data, set etcd.external with the endpoints of the chart's etcd, prefix "+
			cmp.Or(o.etcd.Prefix, registry)+" and its client certificate, and keep that etcd")
	return &v1alpha1.Etcd{Managed: m}
}
