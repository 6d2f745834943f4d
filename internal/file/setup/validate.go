package setup

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// minCAValidity is the minimum validity of a CA. Certificates must be renewed within it.
const minCAValidity = time.Hour

// maxLogLevel is the highest -v that Kubernetes documents.
const maxLogLevel = 10

// Validate returns all problems of a setup with defaults.
func Validate(s *v1alpha1.Setup) field.ErrorList {
	v := newValidator(s)
	v.document()
	names{v}.check()
	v.spec()
	for _, p := range v.parts {
		v.component(p)
	}
	v.exposed()
	v.services()
	v.aliases()
	v.etcds()
	v.shardLabels()
	v.virtualWorkspaces()
	v.authentication()
	v.authorization()
	v.audit()
	v.encryption()
	v.kcpSettings()
	v.frontProxies()
	v.kubeconfigs()
	v.workspaces()
	v.agents()
	v.workloads()
	v.featureGates()
	v.flags()
	placement{v}.check()
	v.trust()
	return v.errs
}

// validator collects the problems of a setup. Its own methods compare fields with other parts of the setup. The methods
// of a section only see the section.
type validator struct {
	setup *v1alpha1.Setup
	parts []part
	*fields
	agentFields
	authenticationFields
	etcdFields
	exposeFields
	frontProxyFields
	serviceFields
	workloadFields
	workspaceFields
}

func newValidator(s *v1alpha1.Setup) *validator {
	f := newFields()
	auth := authenticationFields{f}
	return &validator{setup: s, parts: parts(s), fields: f, agentFields: agentFields{f}, authenticationFields: auth,
		etcdFields: etcdFields{f}, exposeFields: exposeFields{f}, frontProxyFields: frontProxyFields{auth},
		serviceFields: serviceFields{f}, workloadFields: workloadFields{f}, workspaceFields: workspaceFields{f}}
}

func (v *validator) document() {
	for _, f := range []struct{ key, got, want string }{
		{"apiVersion", v.setup.APIVersion, v1alpha1.APIVersion}, {"kind", v.setup.Kind, v1alpha1.KindSetup},
	} {
		if f.got == "" {
			v.required(field.NewPath(f.key), "must be %s", f.want)
		} else if f.got != f.want {
			v.invalid(field.NewPath(f.key), f.got, "must be %s", f.want)
		}
	}
}

func (v *validator) spec() {
	spec, path := &v.setup.Spec, field.NewPath("spec")
	v.release(path.Child("version"), spec.Version)
	v.image(path.Child("image"), spec.Image)
	if spec.Size != "" {
		oneOf(v.fields, path.Child("size"), spec.Size, v1alpha1.Sizes...)
	}
	v.external(path.Child("external"), spec.External)
	for i := range spec.FrontProxies {
		v.external(path.Child("frontProxies").Index(i).Child("external"), spec.FrontProxies[i].External)
	}
	if first := spec.FrontProxies[0].External; first.Hostname != "" && spec.External.Hostname != "" &&
		first != spec.External {
		v.forbidden(path.Child("external"), "conflicts with the address of the first front-proxy: set only one of them")
	}
	v.clusters(path.Child("clusters"), spec.Clusters)
	v.pki(path.Child("pki"), spec.PKI)
	v.commonMetadata(path.Child("commonMetadata"), spec.CommonMetadata)
	v.networkPolicies(path.Child("networkPolicies"), spec.NetworkPolicies)
	v.monitoring(path.Child("monitoring"), spec.Monitoring)
	v.defaults(path.Child("defaults"), spec.Defaults, v.kinds()...)
	if t := spec.TakeOver; t != nil && t.RootShard == "" {
		v.required(path.Child("takeOver", "rootShard"), "the name of the RootShard of kcp-operator")
	} else if t != nil {
		v.subdomain(path.Child("takeOver", "rootShard"), t.RootShard)
	}
}

func (v *fields) external(p *field.Path, e v1alpha1.External) {
	switch {
	case e.Hostname != "":
		v.host(p.Child("hostname"), e.Hostname)
		if e.Port != 0 { // the port of a NodePort has no default
			v.port(p.Child("port"), e.Port)
		}
	case e.Port != 0:
		v.required(p.Child("hostname"), "a port needs a hostname")
	}
}

func (v *fields) clusters(p *field.Path, all []v1alpha1.Cluster) {
	type place struct{ context, kubeconfig, namespace string }
	places := map[place]string{}
	for i, c := range all {
		at, pl := p.Index(i), place{c.Context, c.Kubeconfig, c.Namespace}
		v.name(at.Child("name"), c.Name)
		v.unique(at.Child("name"), c.Name)
		v.label(at.Child("namespace"), c.Namespace)
		v.subdomain(at.Child("domain"), c.Domain)
		if len(c.AsGroups) > 0 && c.As == "" {
			v.required(at.Child("as"), "asGroups need a user")
		}
		for n, group := range c.AsGroups {
			if group == "" {
				v.required(at.Child("asGroups").Index(n), "")
			}
		}
		for _, problem := range validation.IsValidLabelValue(c.Region) {
			v.invalid(at.Child("region"), c.Region, "%s", problem)
		}
		v.ipFamilies(at, c)
		v.file(at.Child("kubeconfig"), c.Kubeconfig)
		if c.Workspace != "" {
			v.workspacePath(at.Child("workspace"), c.Workspace)
		}
		if other, taken := places[pl]; taken {
			v.invalid(at.Child("name"), c.Name, "cluster %s has the same context, kubeconfig and namespace", other)
		}
		places[pl] = c.Name
	}
}

// ipFamilies checks the address families of the Services on a cluster.
func (v *fields) ipFamilies(at *field.Path, c v1alpha1.Cluster) {
	list := at.Child("ipFamilies")
	if c.IPFamilyPolicy != "" {
		oneOf(v, at.Child("ipFamilyPolicy"), c.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack,
			corev1.IPFamilyPolicyPreferDualStack,
			corev1.IPFamilyPolicyRequireDualStack)
	}
	for n, f := range c.IPFamilies {
		oneOf(v, list.Index(n), f, corev1.IPv4Protocol, corev1.IPv6Protocol)
		v.unique(list.Index(n), string(f))
	}
	const why = "two IP families need PreferDualStack or RequireDualStack"
	switch {
	case len(c.IPFamilies) > 1 && c.IPFamilyPolicy == "":
		v.required(at.Child("ipFamilyPolicy"), why)
	case len(c.IPFamilies) > 1 && c.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack:
		v.invalid(at.Child("ipFamilyPolicy"), c.IPFamilyPolicy, why)
	}
}

func (v *validator) pki(p *field.Path, k v1alpha1.PKI) {
	oneOf(v.fields, p.Child("store"), k.Store, v1alpha1.PKIStoreCluster, v1alpha1.PKIStoreDirectory)
	oneOf(v.fields, p.Child("keyAlgorithm"), k.KeyAlgorithm, v1alpha1.KeyECDSAP256, v1alpha1.KeyECDSAP384,
		v1alpha1.KeyRSA2048,
		v1alpha1.KeyRSA4096)
	if k.Store == v1alpha1.PKIStoreCluster && k.Directory != "" {
		v.forbidden(p.Child("directory"), "only the store %s uses it", v1alpha1.PKIStoreDirectory)
	}
	v.file(p.Child("directory"), k.Directory)
	if ca := k.CAValidity.Duration; ca < minCAValidity {
		v.invalid(p.Child("caValidity"), inHours(ca), "must be at least %s", inHours(minCAValidity))
	}
	v.validity(p.Child("certificateValidity"), k.CertificateValidity.Duration)
}

// validity requires that a certificate is valid for at most as long as its CA.
func (v *validator) validity(p *field.Path, d time.Duration) {
	ca := v.setup.Spec.PKI.CAValidity.Duration
	if d <= 0 {
		v.invalid(p, inHours(d), "must be greater than 0")
	} else if d > ca {
		v.invalid(p, inHours(d), "must be at most spec.pki.caValidity, %s", inHours(ca))
	}
}

// defaults checks the fields that spec.defaults and every component share, for components of some kinds.
func (v *fields) defaults(p *field.Path, d v1alpha1.Defaults, kinds ...topology.Kind) {
	if d.LogLevel != nil && (*d.LogLevel < 0 || *d.LogLevel > maxLogLevel) {
		v.invalid(p.Child("logLevel"), *d.LogLevel, "must be between 0 and %d", maxLogLevel)
	}
	if d.LogFormat != "" {
		oneOf(v, p.Child("logFormat"), d.LogFormat, "text", "json")
	}
	if d.ProfilerPort != 0 {
		v.port(p.Child("profilerPort"), d.ProfilerPort)
		if d.ProfilerPort == topology.Port {
			v.invalid(p.Child("profilerPort"), d.ProfilerPort, "is the port of the server")
		}
	}
	v.resources(p.Child("resources"), d.Resources)
	v.args(p, d.ExtraArgs, kinds...)
}

// kinds returns the kinds of the components that spec.defaults is for.
func (v *validator) kinds() []topology.Kind {
	var out []topology.Kind
	for _, p := range v.parts {
		if !slices.Contains(out, p.kind) {
			out = append(out, p.kind)
		}
	}
	return out
}

func (v *validator) component(p part) {
	v.reference(p.path.Child("cluster"), "cluster", p.Cluster, v.clusterNames())
	if p.custom != nil {
		v.otherImage(p.path.Child("image"), p.Image)
	} else {
		v.image(p.path.Child("image"), p.Image)
	}
	v.defaults(p.path, p.Defaults, p.kind)
	if p.url != "" && p.url != v1alpha1.AddressAuto {
		v.url(p.path.Child("url"), p.url, "https")
	}
}

// shardLabels checks the labels of the shards in kcp.
func (v *validator) shardLabels() {
	check := func(p *field.Path, all map[string]string) {
		v.labelMap(p.Child("labels"), all)
		if _, set := all["name"]; set {
			v.forbidden(p.Child("labels").Key("name"), "kcp sets this label to the name of the shard")
		}
	}
	check(field.NewPath("spec", "rootShard"), v.setup.Spec.RootShard.Labels)
	for i, s := range v.setup.Spec.Shards {
		check(field.NewPath("spec", "shards").Index(i), s.Labels)
	}
}

// commonMetadata requires valid labels and annotations that kcpctl does not set itself.
func (v *fields) commonMetadata(p *field.Path, m v1alpha1.CommonMetadata) {
	v.labelMap(p.Child("labels"), m.Labels)
	v.annotationMap(p.Child("annotations"), m.Annotations)
	v.notOwn(p.Child("labels"), m.Labels)
	v.notOwn(p.Child("annotations"), m.Annotations)
}

// notOwn refuses the keys that kcpctl sets itself.
func (v *fields) notOwn(p *field.Path, all map[string]string) {
	for key := range all {
		if topology.IsOwnKey(key) {
			v.forbidden(p.Key(key), "kcpctl sets it itself")
		}
	}
}

// networkPolicies checks the labels of namespaces.
func (v *fields) networkPolicies(p *field.Path, n *v1alpha1.NetworkPolicies) {
	if n == nil {
		return
	}
	v.labelMap(p.Child("clients"), n.Clients)
	v.labelMap(p.Child("metricsClients"), n.MetricsClients)
}

// monitoring requires releases of all shards with a role that only lets its users read metrics: each shard authorizes
// its own clients.
func (v *validator) monitoring(p *field.Path, m *v1alpha1.Monitoring) {
	if m == nil {
		return
	}
	for _, s := range v.parts {
		if r := s.release(v.setup.Spec); s.kind.IsShard() && !release.Of(r).MetricsReader {
			v.forbidden(p, "needs kcp v0.32.0: in earlier releases, only administrators can read the metrics of "+
				"shards, and %s has %s", s.id(), r)
			break // each has the same next step
		}
	}
	if o := m.PrometheusOperator; o != nil {
		v.labelMap(p.Child("prometheusOperator", "labels"), o.Labels)
		v.notOwn(p.Child("prometheusOperator", "labels"), o.Labels)
	}
}

// virtualWorkspaces checks that each server serves one shard, and that no two serve the same.
func (v *validator) virtualWorkspaces() {
	for i, s := range v.setup.Spec.Shards {
		v.virtualWorkspaceURL(field.NewPath("spec", "shards").Index(i), s.ShardSpec)
	}
	v.virtualWorkspaceURL(field.NewPath("spec", "rootShard"), v.setup.Spec.RootShard.ShardSpec)
	servers := map[string]string{}
	for i, s := range v.setup.Spec.VirtualWorkspaces {
		at := field.NewPath("spec", "virtualWorkspaces").Index(i)
		p := at.Child("shard")
		v.reference(p, "shard", s.Shard, v.shardNames())
		if s.Custom() {
			v.customServer(at, &s)
			continue
		}
		v.needsCommand(at.Child("path"), s.Path)
		v.needsCommand(at.Child("kubeconfigSecret"), s.KubeconfigSecret)
		if other, taken := servers[s.Shard]; taken {
			v.invalid(p, s.Shard, "%s already serves this shard", other)
		}
		servers[s.Shard] = string(topology.IDOf(topology.VirtualWorkspaces, s.Name))
		v.servedElsewhere(s.Shard, at.Child("url"))
	}
}

// servedElsewhere refuses a URL of the virtual workspaces of a shard whose own server has another one, at url.
func (v *validator) servedElsewhere(shard string, url *field.Path) {
	for _, p := range v.parts {
		if p.kind.IsShard() && p.id().ShortName() == shard && p.virtualWorkspaceURL != "" {
			v.forbidden(p.path.Child("virtualWorkspaceURL"),
				"must not be set, because another server serves the virtual workspaces of this shard: set %s", url)
		}
	}
}

// needsCommand refuses a field for servers of the user.
func (v *fields) needsCommand(p *field.Path, value string) {
	if value != "" {
		v.forbidden(p, "must not be set without command: it is for your own server")
	}
}

// customServer checks the fields of a server of virtual workspaces that is a server of the user.
func (v *validator) customServer(p *field.Path, s *v1alpha1.VirtualWorkspace) {
	if s.Command[0] == "" {
		v.required(p.Child("command").Index(0), "the path of a program")
	}
	if s.KubeconfigSecret != "" {
		v.subdomain(p.Child("kubeconfigSecret"), s.KubeconfigSecret)
	}
	if s.Path == "" {
		return
	}
	v.mappedPath(p.Child("path"), s.Path)
	for i, f := range v.setup.Spec.FrontProxies {
		for n, m := range f.PathMappings {
			if strings.TrimRight(m.Path, "/") == strings.TrimRight(s.Path, "/") {
				v.invalid(p.Child("path"), s.Path, "spec.frontProxies[%d].pathMappings[%d] has this path, too", i, n)
			}
		}
	}
}

func (v *fields) virtualWorkspaceURL(p *field.Path, s v1alpha1.ShardSpec) {
	if s.VirtualWorkspaceURL != "" {
		v.url(p.Child("virtualWorkspaceURL"), s.VirtualWorkspaceURL, "https")
	}
}

func (v *validator) clusterNames() []string {
	var out []string
	for _, c := range v.setup.Spec.Clusters {
		out = append(out, c.Name)
	}
	return out
}

func (v *validator) shardNames() []string {
	out := []string{topology.RootShardName}
	for _, s := range v.setup.Spec.Shards {
		out = append(out, s.Name)
	}
	return out
}
