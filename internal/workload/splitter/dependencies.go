package splitter

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/api"
)

// Ref names an object in the same namespace.
type Ref struct {
	schema.GroupResource
	Name string
}

func (r Ref) String() string { return r.GroupResource.String() + "/" + r.Name }

// Dependency is an object that another one needs in its cluster.
type Dependency struct {
	Ref
	// Optional means that the other one also works without it.
	Optional bool
}

// The resources that workloads need.
var (
	configMaps      = schema.GroupResource{Resource: "configmaps"}
	secrets         = schema.GroupResource{Resource: "secrets"}
	serviceAccounts = schema.GroupResource{Resource: "serviceaccounts"}
	claims          = schema.GroupResource{Resource: "persistentvolumeclaims"}
	services        = schema.GroupResource{Resource: "services"}
	ingresses       = schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}
)

// followers are the resources whose objects are where workloads need them.
var followers = []schema.GroupResource{configMaps, secrets, serviceAccounts, claims, services, ingresses}

// CanFollow reports whether objects of a resource are where workloads need them, unless the user says otherwise.
func CanFollow(gr schema.GroupResource) bool { return slices.Contains(followers, gr) }

// Follows reports whether an object is where workloads need it. One with the annotation workloads.kcp.dev/spread is scheduled by itself.
func Follows(gr schema.GroupResource, u *unstructured.Unstructured) bool {
	return CanFollow(gr) && u.GetAnnotations()[api.AnnotationSpread] == ""
}

// KeepsData reports whether objects of a resource contain data in their cluster, so that they stay there when no workload needs them.
func KeepsData(gr schema.GroupResource) bool { return gr == claims }

// everywhere are objects that each namespace of a cluster has of its own.
var everywhere = []Ref{{serviceAccounts, "default"}, {configMaps, "kube-root-ca.crt"}}

// podSpecs are the paths of pod specs, by kind.
var podSpecs = map[schema.GroupKind][]string{
	{Kind: "Pod"}:                        {"spec"},
	{Kind: "ReplicationController"}:      {"spec", "template", "spec"},
	{Group: "apps", Kind: "Deployment"}:  {"spec", "template", "spec"},
	{Group: "apps", Kind: "ReplicaSet"}:  {"spec", "template", "spec"},
	{Group: "apps", Kind: "StatefulSet"}: {"spec", "template", "spec"},
	{Group: "apps", Kind: "DaemonSet"}:   {"spec", "template", "spec"},
	{Group: "batch", Kind: "Job"}:        {"spec", "template", "spec"},
	{Group: "batch", Kind: "CronJob"}:    {"spec", "jobTemplate", "spec", "template", "spec"},
}

// PodSpec returns the pod spec of a workload, or nil if its kind has none. It is not a copy.
func PodSpec(u *unstructured.Unstructured) map[string]any {
	path, ok := podSpecs[u.GroupVersionKind().GroupKind()]
	if !ok {
		return nil
	}
	at := u.Object
	for _, field := range path {
		at = object(at, field)
	}
	return at
}

// Dependencies returns the objects that an object names, sorted: those of a pod spec, the pull secrets of a ServiceAccount, the
// Services and certificates of an Ingress.
func Dependencies(u *unstructured.Unstructured) []Dependency {
	d := &collector{}
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "ServiceAccount"}:
		for _, s := range objects(u.Object, "imagePullSecrets") {
			d.add(secrets, s["name"], true)
		}
	case schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"}:
		d.ingress(object(u.Object, "spec"))
	}
	d.pod(PodSpec(u))
	if u.GetKind() == "StatefulSet" {
		d.add(services, object(u.Object, "spec")["serviceName"], true)
	}
	slices.SortFunc(d.found, func(a, b Dependency) int { return cmp.Compare(a.String(), b.String()) })
	return d.found
}

// collector collects dependencies. One that is needed anywhere is not optional.
type collector struct{ found []Dependency }

func (d *collector) add(gr schema.GroupResource, name any, optional any) {
	text, _ := name.(string)
	ref := Ref{gr, text}
	if text == "" || slices.Contains(everywhere, ref) {
		return
	}
	isOptional, _ := optional.(bool)
	if i := slices.IndexFunc(d.found, func(f Dependency) bool { return f.Ref == ref }); i >= 0 {
		d.found[i].Optional = d.found[i].Optional && isOptional
		return
	}
	d.found = append(d.found, Dependency{ref, isOptional})
}

func (d *collector) pod(spec map[string]any) {
	d.add(serviceAccounts, spec["serviceAccountName"], false)
	for _, s := range objects(spec, "imagePullSecrets") {
		d.add(secrets, s["name"], true) // the kubelet pulls without it
	}
	for _, v := range objects(spec, "volumes") {
		d.volume(v)
		for _, source := range objects(object(v, "projected"), "sources") {
			d.add(configMaps, object(source, "configMap")["name"], object(source, "configMap")["optional"])
			d.add(secrets, object(source, "secret")["name"], object(source, "secret")["optional"])
		}
	}
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range objects(spec, list) {
			d.container(c)
		}
	}
}

func (d *collector) volume(v map[string]any) {
	d.add(configMaps, object(v, "configMap")["name"], object(v, "configMap")["optional"])
	d.add(secrets, object(v, "secret")["secretName"], object(v, "secret")["optional"])
	d.add(claims, object(v, "persistentVolumeClaim")["claimName"], false)
	d.add(secrets, object(object(v, "csi"), "nodePublishSecretRef")["name"], false)
}

func (d *collector) container(c map[string]any) {
	for _, e := range objects(c, "envFrom") {
		d.add(configMaps, object(e, "configMapRef")["name"], object(e, "configMapRef")["optional"])
		d.add(secrets, object(e, "secretRef")["name"], object(e, "secretRef")["optional"])
	}
	for _, e := range objects(c, "env") {
		from := object(e, "valueFrom")
		d.add(configMaps, object(from, "configMapKeyRef")["name"], object(from, "configMapKeyRef")["optional"])
		d.add(secrets, object(from, "secretKeyRef")["name"], object(from, "secretKeyRef")["optional"])
	}
}

func (d *collector) ingress(spec map[string]any) {
	d.add(services, object(object(spec, "defaultBackend"), "service")["name"], false)
	for _, rule := range objects(spec, "rules") {
		for _, path := range objects(object(rule, "http"), "paths") {
			d.add(services, object(object(path, "backend"), "service")["name"], false)
		}
	}
	for _, tls := range objects(spec, "tls") {
		d.add(secrets, tls["secretName"], true) // controllers serve a certificate of their own
	}
}

// Selects reports whether a Service selects the pods of a workload. A Service without a selector selects none.
func Selects(service, workload *unstructured.Unstructured) bool {
	selector := object(object(service.Object, "spec"), "selector")
	labels := object(object(object(object(workload.Object, "spec"), "template"), "metadata"), "labels")
	if workload.GetKind() == "Pod" {
		labels = object(object(workload.Object, "metadata"), "labels")
	}
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

// Placed is a workload and its clusters.
type Placed struct {
	Ref
	Object   *unstructured.Unstructured
	Clusters []string
}

// Needs has the clusters in which a dependency is needed, and the workloads that need it there.
type Needs map[Ref]map[string][]string

// FindNeeds returns the dependencies of the workloads of a namespace, with those of dependencies: the objects that they name, the
// Services that select them, and the Ingresses of these. A Service without a selector is needed by all workloads. Objects are the
// roots in the namespace.
func FindNeeds(workloads []Placed, all map[Ref]*unstructured.Unstructured) Needs {
	n := &needs{Needs: Needs{}, objects: all, ingresses: map[string][]Ref{}}
	var selecting []Ref
	for ref, o := range all {
		switch ref.GroupResource {
		case services:
			selecting = append(selecting, ref)
		case ingresses:
			for _, d := range Dependencies(o) {
				if d.GroupResource == services {
					n.ingresses[d.Name] = append(n.ingresses[d.Name], ref)
				}
			}
		}
	}
	for _, w := range workloads {
		n.follow(w, w.Object, map[Ref]bool{w.Ref: true})
		for _, s := range selecting {
			if o := all[s]; len(object(object(o.Object, "spec"), "selector")) == 0 || Selects(o, w.Object) {
				n.need(w, Dependency{Ref: s}, map[Ref]bool{w.Ref: true})
			}
		}
	}
	return n.Needs
}

// needs is the state of FindNeeds.
type needs struct {
	Needs
	objects   map[Ref]*unstructured.Unstructured
	ingresses map[string][]Ref // by the name of a Service
}

// follow adds what an object names. Seen are the objects between it and the workload, against cycles.
func (n *needs) follow(w Placed, u *unstructured.Unstructured, seen map[Ref]bool) {
	for _, d := range Dependencies(u) {
		n.need(w, d, seen)
	}
}

// need adds a dependency and those that follow from it.
func (n *needs) need(w Placed, d Dependency, seen map[Ref]bool) {
	if seen[d.Ref] {
		return
	}
	seen[d.Ref] = true
	u := n.objects[d.Ref]
	if u == nil {
		return
	}
	if n.Needs[d.Ref] == nil {
		n.Needs[d.Ref] = map[string][]string{}
	}
	for _, c := range w.Clusters {
		if by := n.Needs[d.Ref][c]; !slices.Contains(by, w.String()) {
			by = append(by, w.String())
			slices.Sort(by)
			n.Needs[d.Ref][c] = by
		}
	}
	// An Ingress is needed where one of its Services is. It does not bring the others there.
	if d.GroupResource == ingresses {
		for _, next := range Dependencies(u) {
			if next.GroupResource != services {
				n.need(w, next, seen)
			}
		}
		return
	}
	if d.GroupResource == services {
		for _, i := range n.ingresses[d.Name] {
			n.need(w, Dependency{Ref: i}, seen)
		}
	}
	n.follow(w, u, seen)
}

// object returns a field that is an object, or nil.
func object(of map[string]any, field string) map[string]any {
	o, _ := of[field].(map[string]any)
	return o
}

// objects returns the items of a list that are objects.
func objects(of map[string]any, field string) []map[string]any {
	list, _ := of[field].([]any)
	var all []map[string]any
	for _, item := range list {
		if o, ok := item.(map[string]any); ok {
			all = append(all, o)
		}
	}
	return all
}
