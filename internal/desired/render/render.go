// Package render renders the objects of a setup: it executes templates, decodes the result strictly, and merges the
// overlays of the setup file. It is pure: the same setup and PKI give the same bytes.
package render

import (
	"fmt"
	"net/url"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/desired/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Objects renders every object of a setup, in the order of its components.
func Objects(t *topology.Topology, s *pki.State) ([]Object, error) {
	return As(t, s, func(o Object) (Object, error) { return o, nil })
}

// As renders every object of a setup, and returns what convert makes of each, in the order of the components. The
// objects of a large setup need several times the memory of their text.
func As[T any](t *topology.Topology, s *pki.State, convert func(Object) (T, error)) ([]T, error) {
	return Proven(t, s, time.Time{}, convert)
}

// Proven is As, and Prove for a time unless it is zero, with one rendering.
func Proven[T any](t *topology.Topology, s *pki.State, now time.Time, convert func(Object) (T, error)) ([]T, error) {
	results := make([][]T, len(t.Components))
	err := renderAll(t, s, now, nil, func(i int, objects []Object) (err error) {
		results[i] = make([]T, len(objects))
		for k := range objects {
			if results[i][k], err = convert(objects[k]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return slices.Concat(results...), nil
}

// renderAll renders all components, or only some of their templates, and passes the objects of each on, with its index.
// If now is not zero, it then verifies all connections.
func renderAll(t *topology.Topology, s *pki.State, now time.Time, only func(template string) bool,
	do func(i int, objects []Object) error,
) error {
	r, err := newRenderer(t, s)
	if err != nil {
		return err
	}
	r.only = only
	m := newMounted(t, s)
	var g errgroup.Group
	g.SetLimit(atOnce())
	for i, c := range t.Components {
		g.Go(func() error {
			objects, err := r.component(c)
			if err != nil {
				return fmt.Errorf("render %s: %w", c.ID(), err)
			}
			if !now.IsZero() && hasFiles(c) {
				if err := m.add(c, objects); err != nil {
					return notFitting(err)
				}
			}
			return do(i, objects)
		})
	}
	if err := g.Wait(); err != nil || now.IsZero() {
		return err
	}
	return notFitting(pki.Prove(t, s, m, now))
}

func atOnce() int { return runtime.GOMAXPROCS(0) }

// Component renders the objects of one component.
func Component(t *topology.Topology, s *pki.State, c *topology.Component) ([]Object, error) {
	r, err := newRenderer(t, s)
	if err != nil {
		return nil, err
	}
	out, err := r.component(c)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", c.ID(), err)
	}
	return out, nil
}

// Namespace renders the namespace of a cluster of the setup.
func Namespace(t *topology.Topology, cl topology.Cluster) (Object, error) {
	templates, err := parseTemplates()
	if err != nil {
		return Object{}, err
	}
	b := &objects{r: &renderer{t: t, templates: templates}, c: t.Component(topology.IDOf(topology.Base, cl.Name))}
	if b.add(namespaceTemplate, b.data("", "", nil)); b.err != nil {
		return Object{}, b.err
	}
	return b.out[0], nil
}

type renderer struct {
	t         *topology.Topology
	state     *pki.State
	certs     map[topology.ID][]pki.Cert
	templates templateSet
	// only limits the templates that are rendered. Nil: all are.
	only func(template string) bool
	// network is called only if the setup has NetworkPolicies.
	network func() *topology.Network
}

func newRenderer(t *topology.Topology, s *pki.State) (*renderer, error) {
	r := &renderer{t: t, state: s, certs: map[topology.ID][]pki.Cert{}}
	r.network = sync.OnceValue(func() *topology.Network { return topology.NewNetwork(t) })
	for _, c := range pki.Table(t) {
		r.certs[c.Component] = append(r.certs[c.Component], c)
	}
	var err error
	r.templates, err = parseTemplates()
	return r, err
}

// Keys and types of Secrets and ConfigMaps.
const (
	serviceAccountKey    = "sa.key"
	serviceAccountPublic = "sa.pub"
	pathMappingFile      = "path-mapping.yaml"
	tlsType              = "kubernetes.io/tls" // the PKI store reads certificates from Secrets of this type
	// KubeconfigKey is the key of a kubeconfig in its Secret, the same as in Secrets of kcp-operator.
	KubeconfigKey = "kubeconfig"
	// TokenKey is the key of a token in its Secret, as in Secrets of ServiceAccounts.
	TokenKey = "token"
)

func (r *renderer) trusted(ca topology.CA) []byte { return r.state.CAs[ca].Trusted() }

func (r *renderer) component(c *topology.Component) ([]Object, error) {
	b := &objects{r: r, c: c}
	switch {
	case c.Runs():
		b.workload()
	case c.Kind == topology.Kubeconfig:
		b.userKubeconfig()
	case c.Kind == topology.Monitoring:
		b.monitoring()
	case c.Kind == topology.Workspace:
		b.workspace()
	case c.Kind == topology.Physical:
		b.physical()
	default:
		b.base()
	}
	return b.out, b.err
}

// objects collects the objects of one component. After the first error it adds none.
type objects struct {
	r   *renderer
	c   *topology.Component
	out []Object
	err error
}

// add renders a template and merges overlays into it.
func (b *objects) add(template string, data any, overlays ...overlay) {
	if b.err != nil || !b.renders(template) {
		return
	}
	obj, err := b.r.templates.object(template, data, overlays...)
	if err != nil {
		b.err = err
		return
	}
	if !b.c.Cluster.Local && template != namespaceTemplate {
		labels := obj.GetLabels()
		labels[topology.LabelApplySet] = b.r.t.ApplySet(b.c.Cluster)
		// Pods get this label from their node (kubernetes: plugin/pkg/admission/podtopologylabels).
		if region := b.c.Cluster.Region; region != "" && b.c.Kind == topology.FrontProxy {
			labels[corev1.LabelTopologyRegion] = region
		}
		obj.SetLabels(labels)
	}
	b.c.Cluster.AddTo(obj)
	b.out = append(b.out, Object{Cluster: b.c.Cluster.Name, Component: b.c.ID(), Unstructured: obj})
}

// renders reports whether a template is rendered.
func (b *objects) renders(template string) bool { return b.r.only == nil || b.r.only(template) }

// data holds the values of the templates of ConfigMaps, Secrets and Namespaces.
type data struct {
	Name, Namespace string
	Labels          map[string]string
	Type            string
	Data            any
}

func (b *objects) data(name, secretType string, content any) data {
	return data{Name: name, Namespace: b.c.Cluster.Namespace, Labels: b.c.Labels(), Type: secretType, Data: content}
}

// base adds the objects that components on one cluster share. A cluster gets the bundles that its components read, and
// the keys of service accounts only if it has a shard.
func (b *objects) base() {
	if !b.c.Cluster.Local {
		b.add(namespaceTemplate, b.data("", "", nil))
	}
	on := b.r.t.On(b.c.Cluster)
	bundles := map[string]string{}
	for _, c := range on {
		for _, ca := range b.r.t.Bundles(c) {
			bundles[string(ca)+".crt"] = string(b.r.state.CAs[ca].Trusted())
		}
	}
	b.add(configMapTemplate, b.data(b.r.t.Object(topology.CAPart), "", bundles))
	if !slices.ContainsFunc(on, (*topology.Component).IsShard) {
		return
	}
	sa := b.r.state.ServiceAccount
	b.add(secretTemplate, b.data(b.r.t.Object(topology.ServiceAccountPart), "Opaque", map[string][]byte{
		serviceAccountKey: sa.Key, serviceAccountPublic: sa.Public,
	}))
	b.encryptionSecret()
}

// workload adds the objects of a component that runs: certificates, kubeconfigs and configuration, then the
// NetworkPolicy, the Service, the volume and the workload itself.
func (b *objects) workload() {
	srcs := append(b.certs(), b.bundles()...)
	if kcs := kubeconfig.ForComponent(b.r.t, b.c, b.r.trusted); len(kcs) > 0 {
		srcs = append(srcs, b.kubeconfigs(kcs))
	}
	if b.c.IsShard() {
		srcs = append(append(srcs, b.serviceAccount()), b.encryption()...)
	}
	if credential := b.c.ClusterCredential(); credential != nil {
		srcs = append(srcs, b.clusterCredential(*credential))
	}
	if s := b.c.Storage; s != nil && s.TLSSecret != "" {
		srcs = append(srcs, externalEtcd(s.TLSSecret))
	}
	srcs = append(srcs, b.config()...)
	b.network()
	programOf(b.c.Kind).objects(b, newWorkload(b.r.t, b.r.state, b.c, srcs))
}

// server adds the objects of a kcp server.
func (b *objects) server(w workload) {
	b.add(serviceTemplate, w, serviceOverlays(b.c.Services)...)
	if template := routeTemplates[b.c.Expose.Type]; template != "" {
		b.add(template, newRoute(b.c))
	}
	for _, name := range b.c.Aliases {
		alias := w
		alias.Name, alias.ServicePorts = name, []dict{servicePort(b.c)}
		b.add(aliasTemplate, alias)
	}
	if w.Claim != "" {
		b.add(claimTemplate, w)
	}
	b.disruption(w)
	b.add(deploymentTemplate, w, podOverlays(b.c.PodTemplates)...)
	if a := b.c.Autoscaling; a != nil {
		b.add(autoscalerTemplate, autoscaler{w.Name, w.Namespace, w.Labels, a.MinReplicas, a.MaxReplicas,
			a.TargetCPUUtilizationPercentage})
	}
}

// etcd adds the objects of a managed etcd.
func (b *objects) etcd(w workload) {
	b.add(serviceTemplate, w, serviceOverlays(b.c.Services)...)
	b.add(peersTemplate, w)
	b.add(configMapTemplate, b.data(b.c.Object(topology.MembersConfig), "", map[string]string{
		EnvInitialCluster: initialCluster(b.c), EnvInitialClusterState: "new",
	}))
	b.disruption(w)
	b.add(statefulSetTemplate, w, podOverlays(b.c.PodTemplates)...)
	if b.err == nil && b.renders(statefulSetTemplate) {
		b.err = keepEnvFrom(b.c.Kind, b.out[len(b.out)-1].Object, w.EnvFrom)
	}
}

// disruption adds the PodDisruptionBudget of a component with several replicas.
func (b *objects) disruption(w workload) {
	if b.c.Replicated() {
		b.add(pdbTemplate, w)
	}
}

// autoscaler holds the values of the template of a HorizontalPodAutoscaler.
type autoscaler struct {
	Name, Namespace       string
	Labels                map[string]string
	Min, Max, Utilization int32
}

// certs adds the certificates of the component, each in its own Secret.
func (b *objects) certs() []source {
	var srcs []source
	for _, cert := range b.r.certs[b.c.ID()] {
		pair, ok := b.r.state.Leaves[cert.Key()]
		if !ok && b.renders(secretTemplate) {
			b.err = fmt.Errorf("the certificate %s was not issued", cert.Secret)
			return nil
		}
		b.add(secretTemplate, b.data(cert.Secret, tlsType,
			map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key}))
		srcs = append(srcs, source{secret: cert.Secret, items: []item{
			{"tls.crt", files.Cert(cert.Name), pair.Cert},
			{"tls.key", files.Key(cert.Name), pair.Key},
		}})
	}
	return srcs
}

// bundles returns the bundles of the authorities that the component trusts.
func (b *objects) bundles() []source {
	s := source{configMap: b.r.t.Object(topology.CAPart)}
	for _, ca := range b.r.t.Bundles(b.c) {
		s.items = append(s.items, item{string(ca) + ".crt", files.CA(ca), b.r.state.CAs[ca].Trusted()})
	}
	return []source{s}
}

func (b *objects) kubeconfigs(kcs []kubeconfig.File) source {
	s := source{secret: b.c.Object(topology.KubeconfigsPart)}
	content := map[string][]byte{}
	for _, kc := range kcs {
		content[kc.Name] = kc.Data
		s.items = append(s.items, item{kc.Name, files.Kubeconfig(kc.Name), kc.Data})
	}
	b.add(secretTemplate, b.data(s.secret, "Opaque", content))
	return s
}

func (b *objects) serviceAccount() source {
	sa := b.r.state.ServiceAccount
	return source{secret: b.r.t.Object(topology.ServiceAccountPart), items: []item{
		{serviceAccountKey, files.ServiceAccount(serviceAccountKey), sa.Key},
		{serviceAccountPublic, files.ServiceAccount(serviceAccountPublic), sa.Public},
	}}
}

func externalEtcd(secret string) source {
	s := source{secret: secret}
	for _, key := range []string{"ca.crt", "tls.crt", "tls.key"} {
		s.items = append(s.items, item{key: key, path: files.ExternalEtcd(key)})
	}
	return s
}

// userKubeconfig adds the Secret of a kubeconfig, and the bindings of its cluster roles in its workspace.
func (b *objects) userKubeconfig() {
	for _, cert := range b.r.certs[b.c.ID()] {
		pair, ok := b.r.state.Leaves[cert.Key()]
		if !ok {
			b.err = fmt.Errorf("the certificate %s was not issued", cert.Secret)
			return
		}
		content := kubeconfig.ForUser(*b.c.Access, b.r.state.CAs[topology.ServerCA].Trusted(), pair)
		b.add(secretTemplate, b.data(cert.Secret, tlsType, map[string][]byte{
			KubeconfigKey: content, "tls.crt": pair.Cert, "tls.key": pair.Key,
		}))
	}
	b.userRoles()
}

func hostname(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
