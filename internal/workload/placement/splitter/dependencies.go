package splitter

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
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

// CanFollow reports whether objects of a resource are where workloads need them, unless the user says otherwise.
func CanFollow(gr schema.GroupResource) bool {
	k, _ := kinds.OfResource(gr)
	return k.Spread == kinds.Follow
}

// Follows reports whether an object is where workloads need it. One with the annotation workloads.kcp.dev/spread is
// scheduled by itself.
func Follows(gr schema.GroupResource, u *unstructured.Unstructured) bool {
	return CanFollow(gr) && u.GetAnnotations()[api.AnnotationSpread] == ""
}

// KeepsData reports whether objects of a resource are data in their cluster, so that they are kept there when no
// workload needs them.
func KeepsData(gr schema.GroupResource) bool {
	k, _ := kinds.OfResource(gr)
	return k.Data == kinds.AlwaysData
}

// PodSpec returns the pod spec of a workload, or nil if its kind has no pod spec. It is not a copy.
func PodSpec(u *unstructured.Unstructured) map[string]any { return kinds.PodSpec(u) }

// Dependencies returns the objects that an object names, sorted: the objects in a pod spec, the pull secrets of a
// ServiceAccount, the Services and certificates of an Ingress.
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
	if _, ok := kinds.PodTemplate(u); ok {
		d.pod(PodSpec(u))
	}
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
	if text == "" || kinds.IsEverywhere(gr, text) && gr != serviceAccounts {
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
	account, _ := spec["serviceAccountName"].(string)
	account = cmp.Or(account, kinds.DefaultAccount)
	// Each namespace has the default account. It is only needed for what it brings, see adds.
	d.add(serviceAccounts, account, account == kinds.DefaultAccount)
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
