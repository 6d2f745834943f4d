package setup

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Defaults of a setup.
const (
	defaultRepository = "ghcr.io/kcp-dev/kcp"
	// EtcdImage is the image of managed etcds.
	EtcdImage         = "gcr.io/etcd-development/etcd:v3.6.16"
	defaultPort       = 6443
	defaultRoutedPort = 443
	defaultLogLevel   = 2
	defaultCluster    = "default"
	defaultNamespace  = "kcp"
	defaultDomain     = "cluster.local"
	defaultDirectory  = "pki"
	defaultFrontProxy = "main"
	defaultKubeconfig = "admin"
	adminUser         = "kcp-admin"
	adminGroup        = "system:kcp:admin"

	defaultCAValidity          = 87600 * time.Hour
	defaultCertificateValidity = 8760 * time.Hour
	defaultKubeconfigValidity  = 8766 * time.Hour
)

// SetDefaults sets the defaults that are documented on the API types. It is idempotent, and components share no memory
// afterwards.
func SetDefaults(s *v1alpha1.Setup) {
	spec := &s.Spec
	fill(&spec.Version, release.Default)
	fill(&spec.Image.Repository, defaultRepository)
	fill(&spec.Image.PullPolicy, corev1.PullIfNotPresent)
	defaultClusters(spec)
	defaultPKI(&spec.PKI)
	fill(&spec.Defaults.Replicas, 1)
	fillPointer(&spec.Defaults.LogLevel, defaultLogLevel)
	if spec.Etcd == (v1alpha1.Etcd{}) {
		spec.Etcd.Managed = &v1alpha1.ManagedEtcd{}
	}
	fillEtcd(&spec.Etcd, v1alpha1.Etcd{}, spec.Size, false)
	defaultComponents(s)
	defaultAuthentication(spec)
	defaultAuthorization(spec)
	defaultAudit(spec)
	defaultEncryption(spec.Encryption)
	defaultPathMappings(spec)
	defaultAgents(spec)
	defaultWorkloads(spec)
	for i := range spec.Kubeconfigs {
		defaultKubeconfigFields(&spec.Kubeconfigs[i], spec)
	}
	defaultWorkspaces(spec.Workspaces)
}

// fill sets a value that is zero.
func fill[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// fillPointer sets a pointer that is nil to a new value.
func fillPointer[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// inherit copies the fields of base that p does not set.
func inherit[T any](p *T, base T) {
	to, from := reflect.ValueOf(p).Elem(), reflect.ValueOf(base)
	for i := range to.NumField() {
		switch value := from.Field(i); {
		case !to.Field(i).IsZero() || value.IsZero():
		case value.Kind() == reflect.Pointer:
			to.Field(i).Set(reflect.New(value.Type().Elem()))
			to.Field(i).Elem().Set(value.Elem())
		default:
			to.Field(i).Set(value)
		}
	}
}

// defaultExternal sets the port of an address. A NodePort without a number has no port yet.
func defaultExternal(e *v1alpha1.External, x v1alpha1.Expose) {
	switch {
	case e.Hostname == "":
	case x.Type == v1alpha1.ExposeNodePort:
		fill(&e.Port, x.NodePort)
	case x.Type.Routed():
		fill(&e.Port, defaultRoutedPort)
	default:
		fill(&e.Port, defaultPort)
	}
}

func defaultClusters(spec *v1alpha1.Spec) {
	if len(spec.Clusters) == 0 {
		spec.Clusters = []v1alpha1.Cluster{{Name: defaultCluster}}
	}
	for i := range spec.Clusters {
		fill(&spec.Clusters[i].Namespace, defaultNamespace)
		fill(&spec.Clusters[i].Domain, defaultDomain)
	}
}

func defaultPKI(p *v1alpha1.PKI) {
	fill(&p.Store, v1alpha1.PKIStoreCluster)
	if p.Store == v1alpha1.PKIStoreDirectory {
		fill(&p.Directory, defaultDirectory)
	}
	fill(&p.KeyAlgorithm, v1alpha1.KeyECDSAP256)
	fill(&p.CAValidity, metav1.Duration{Duration: defaultCAValidity})
	fillValidity(&p.CertificateValidity, defaultCertificateValidity, p)
}

// fillValidity sets the validity of a certificate, which is at most the validity of its CA.
func fillValidity(d *metav1.Duration, value time.Duration, p *v1alpha1.PKI) {
	fill(d, metav1.Duration{Duration: min(value, p.CAValidity.Duration)})
}

// defaultComponents sets what components inherit from spec.defaults, spec.etcd and their kind.
func defaultComponents(s *v1alpha1.Setup) {
	spec := &s.Spec
	if len(spec.FrontProxies) == 0 {
		spec.FrontProxies = []v1alpha1.FrontProxy{{Name: defaultFrontProxy}}
	}
	if len(spec.Kubeconfigs) == 0 {
		spec.Kubeconfigs = []v1alpha1.Kubeconfig{{Name: defaultKubeconfig, User: adminUser,
			Groups: []string{adminGroup}}}
	}
	defaultAutoscaling(spec)
	fill(&spec.RootShard.Cluster, spec.Clusters[0].Name)
	for _, p := range parts(s) {
		fill(&p.Cluster, spec.RootShard.Cluster)
		if p.etcd != nil {
			defaultEtcd(p, s)
		}
		if p.etcd != nil && (*p.etcd).Embedded != nil {
			fill(&p.Replicas, 1)
		}
		fill(&p.Replicas, spec.Defaults.Replicas)
		inherit(&p.ServerSettings, spec.Defaults.ServerSettings)
		fill(&p.Expose.Type, v1alpha1.ExposeClusterIP)
		if p.Resources == nil {
			p.Resources = cmp.Or(spec.Defaults.Resources, resourcesOf(spec.Size, p.kind)).DeepCopy()
		}
	}
	defaultExternal(&spec.External, spec.FrontProxies[0].Expose)
	for i := range spec.FrontProxies {
		defaultExternal(&spec.FrontProxies[i].External, spec.FrontProxies[i].Expose)
	}
	for i := range spec.VirtualWorkspaces {
		fill(&spec.VirtualWorkspaces[i].Shard, topology.RootShardName)
	}
}

// defaultEtcd sets the etcd of a component: the etcd of spec.etcd or, for a cache server, an embedded one.
func defaultEtcd(p part, s *v1alpha1.Setup) {
	base := s.Spec.Etcd
	cache := p.kind == topology.CacheServer
	if *p.etcd == nil {
		*p.etcd = &v1alpha1.Etcd{}
	}
	e := *p.etcd
	if *e == (v1alpha1.Etcd{}) {
		switch {
		case cache || base.Embedded != nil:
			e.Embedded = &v1alpha1.EmbeddedEtcd{}
		case base.External != nil:
			e.External = &v1alpha1.ExternalEtcd{}
		default:
			e.Managed = &v1alpha1.ManagedEtcd{}
		}
	}
	fillEtcd(e, base, s.Spec.Size, cache)
}

// fillEtcd sets the unset fields of an etcd from base, then to the defaults of a size.
func fillEtcd(e *v1alpha1.Etcd, base v1alpha1.Etcd, size v1alpha1.Size, cache bool) {
	if e.Managed != nil {
		fillManaged(e.Managed, cmp.Or(base.Managed, &v1alpha1.ManagedEtcd{}), size)
	}
	// The endpoints and credentials of an external etcd are inherited together. The prefix is not: each component has
	// its own.
	if e.External != nil && base.External != nil && len(e.External.Endpoints) == 0 {
		e.External.Endpoints = slices.Clone(base.External.Endpoints)
		fill(&e.External.TLSSecret, base.External.TLSSecret)
	}
	if e.Embedded != nil {
		fillEmbedded(e.Embedded, cmp.Or(base.Embedded, &v1alpha1.EmbeddedEtcd{}), size, cache)
	}
}

func fillManaged(m, base *v1alpha1.ManagedEtcd, size v1alpha1.Size) {
	if m.Storage == nil && m.StorageClassName == "" {
		m.Ephemeral = m.Ephemeral || base.Ephemeral
	}
	fillPointer(&m.Replicas, *cmp.Or(base.Replicas, new(int32(1))))
	fill(&m.Image, cmp.Or(base.Image, EtcdImage))
	fillStorage(&m.Storage, base.Storage, size)
	fill(&m.StorageClassName, base.StorageClassName)
	if q := cmp.Or(base.Quota, quotaOf(size)); m.Quota == nil && q != nil && q.Cmp(*m.Storage) < 0 {
		m.Quota = new(q.DeepCopy())
	}
	fill(&m.AutoCompaction, base.AutoCompaction)
	if m.Resources == nil {
		m.Resources = cmp.Or(base.Resources, resourcesOf(size, topology.Etcd)).DeepCopy()
	}
	if m.PodTemplate == nil && base.PodTemplate != nil {
		m.PodTemplate = clone(map[string]any(base.PodTemplate)).(map[string]any)
	}
	if m.ExtraArgs == nil {
		m.ExtraArgs = slices.Clone(base.ExtraArgs)
	}
}

func fillEmbedded(m, base *v1alpha1.EmbeddedEtcd, size v1alpha1.Size, cache bool) {
	fillStorage(&m.Storage, base.Storage, size)
	fill(&m.StorageClassName, base.StorageClassName)
	if cache {
		fillPointer(&m.Ephemeral, true)
	}
	fillPointer(&m.Ephemeral, *cmp.Or(base.Ephemeral, new(false)))
}

func fillStorage(q **resource.Quantity, base *resource.Quantity, size v1alpha1.Size) {
	if *q == nil {
		*q = new(cmp.Or(base, new(resource.MustParse(volumeOf(size).storage))).DeepCopy())
	}
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = clone(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = clone(value)
		}
		return out
	}
	return v
}

func defaultKubeconfigFields(k *v1alpha1.Kubeconfig, spec *v1alpha1.Spec) {
	if k.Target == (v1alpha1.Target{}) {
		k.Target.FrontProxy = spec.FrontProxies[topology.ChooseFrontProxy(frontProxyChoices(spec), "", "")].Name
	}
	fill(&k.User, k.Name)
	fill(&k.Workspace, topology.RootShardName)
	fillValidity(&k.Validity, defaultKubeconfigValidity, &spec.PKI)
}
