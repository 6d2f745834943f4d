package splitter

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

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

	resourceClaims         = schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
	resourceClaimTemplates = schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}
	podGroups              = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
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

// Dependencies returns the objects that an object names, sorted: the objects in a pod spec, the pull secrets of a
// ServiceAccount, the ServiceAccount of a token, the Services and certificates of an Ingress.
func Dependencies(u *unstructured.Unstructured) []Dependency {
	d := &collector{}
	for _, r := range references[u.GroupVersionKind().GroupKind()] {
		d.named(u.Object, r)
	}
	if _, ok := kinds.PodTemplate(u); ok {
		d.pod(kinds.PodSpec(u))
	}
	if u.GetKind() == "StatefulSet" {
		d.add(services, object(u.Object, "spec")["serviceName"], true)
	}
	if account := TokenOf(u); account != "" {
		d.add(serviceAccounts, account, false)
	}
	slices.SortFunc(d.found, func(a, b Dependency) int { return cmp.Compare(a.String(), b.String()) })
	return d.found
}

// collector collects dependencies. One that is needed anywhere is not optional.
type collector struct{ found []Dependency }

func (d *collector) add(gr schema.GroupResource, name any, optional bool) {
	text, _ := name.(string)
	ref := Ref{gr, text}
	if text == "" || kinds.IsEverywhere(gr, text) && gr != serviceAccounts {
		return
	}
	if i := slices.IndexFunc(d.found, func(f Dependency) bool { return f.Ref == ref }); i >= 0 {
		d.found[i].Optional = d.found[i].Optional && optional
		return
	}
	d.found = append(d.found, Dependency{ref, optional})
}

func (d *collector) pod(spec map[string]any) {
	account, _ := spec["serviceAccountName"].(string)
	alias, _ := spec["serviceAccount"].(string)
	account = cmp.Or(account, alias, kinds.DefaultAccount)
	// Each namespace has the default account. It is only needed for what it brings, see adds.
	d.add(serviceAccounts, account, account == kinds.DefaultAccount)
	for _, r := range podReferences {
		d.named(spec, r)
	}
}

func (d *collector) named(object map[string]any, r reference) {
	kinds.Visit(object, strings.Split(r.path, "."), func(at map[string]any, field string) {
		optional, _ := at["optional"].(bool)
		d.add(r.GroupResource, at[field], optional || r.optional)
	})
}

func object(of map[string]any, field string) map[string]any {
	o, _ := of[field].(map[string]any)
	return o
}

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

// reference is a field that has the name of an object in the same namespace.
type reference struct {
	// path are the fields, with dots between them. A step that ends with [] is a list.
	path string
	schema.GroupResource
	// optional means that pods start without the object. Otherwise the field optional beside the name decides.
	optional bool
}

// references are the references of objects without pods.
var references = map[schema.GroupKind][]reference{
	{Kind: "ServiceAccount"}: {{path: "imagePullSecrets[].name", GroupResource: secrets, optional: true}},
	{Group: "networking.k8s.io", Kind: "Ingress"}: {
		{path: "spec.defaultBackend.service.name", GroupResource: services},
		{path: "spec.rules[].http.paths[].backend.service.name", GroupResource: services},
		// Controllers serve their own certificate.
		{path: "spec.tls[].secretName", GroupResource: secrets, optional: true},
	},
}

// podReferences are all references of a pod spec, besides the ServiceAccount. A test compares them with the types of
// Kubernetes.
var podReferences = []reference{
	{path: "imagePullSecrets[].name", GroupResource: secrets, optional: true}, // the kubelet pulls without it
	{path: "subdomain", GroupResource: services, optional: true},
	{path: "containers[].envFrom[].configMapRef.name", GroupResource: configMaps},
	{path: "containers[].envFrom[].secretRef.name", GroupResource: secrets},
	{path: "containers[].env[].valueFrom.configMapKeyRef.name", GroupResource: configMaps},
	{path: "containers[].env[].valueFrom.secretKeyRef.name", GroupResource: secrets},
	{path: "initContainers[].envFrom[].configMapRef.name", GroupResource: configMaps},
	{path: "initContainers[].envFrom[].secretRef.name", GroupResource: secrets},
	{path: "initContainers[].env[].valueFrom.configMapKeyRef.name", GroupResource: configMaps},
	{path: "initContainers[].env[].valueFrom.secretKeyRef.name", GroupResource: secrets},
	{path: "resourceClaims[].resourceClaimName", GroupResource: resourceClaims},
	{path: "resourceClaims[].resourceClaimTemplateName", GroupResource: resourceClaimTemplates},
	{path: "schedulingGroup.podGroupName", GroupResource: podGroups},
	{path: "volumes[].azureFile.secretName", GroupResource: secrets},
	{path: "volumes[].cephfs.secretRef.name", GroupResource: secrets},
	{path: "volumes[].cinder.secretRef.name", GroupResource: secrets},
	{path: "volumes[].configMap.name", GroupResource: configMaps},
	{path: "volumes[].csi.nodePublishSecretRef.name", GroupResource: secrets},
	{path: "volumes[].flexVolume.secretRef.name", GroupResource: secrets},
	{path: "volumes[].iscsi.secretRef.name", GroupResource: secrets},
	{path: "volumes[].persistentVolumeClaim.claimName", GroupResource: claims},
	{path: "volumes[].projected.sources[].configMap.name", GroupResource: configMaps},
	{path: "volumes[].projected.sources[].secret.name", GroupResource: secrets},
	{path: "volumes[].rbd.secretRef.name", GroupResource: secrets},
	{path: "volumes[].scaleIO.secretRef.name", GroupResource: secrets},
	{path: "volumes[].secret.secretName", GroupResource: secrets},
	{path: "volumes[].storageos.secretRef.name", GroupResource: secrets},
}

// ServiceName is the name of a Service with its namespace.
type ServiceName struct{ Service, Namespace string }

// serviceName is such a name: db.backend, db.backend.svc and db.backend.svc.cluster.local, which may end with a dot.
var serviceName = regexp.MustCompile(`\b([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)\.([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)` +
	`(?:\.svc(?:\.[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?)?\.?)?(?:[^-.a-z0-9]|$)`)

// ServiceNames returns what looks like the name of a Service in the variables, commands and arguments of the containers
// of a workload, in their order.
func ServiceNames(u *unstructured.Unstructured) (all []ServiceName) {
	find := func(value any) {
		text, _ := value.(string)
		for _, m := range serviceName.FindAllStringSubmatch(text, -1) {
			all = append(all, ServiceName{Service: m[1], Namespace: m[2]})
		}
	}
	spec := kinds.PodSpec(u)
	for _, list := range []string{"initContainers", "containers"} {
		for _, c := range objects(spec, list) {
			for _, e := range objects(c, env) {
				find(e["value"])
			}
			for _, field := range []string{"command", "args"} {
				values, _ := c[field].([]any)
				for _, v := range values {
					find(v)
				}
			}
		}
	}
	return all
}

// Placed is a workload and its clusters, or an object that brings others, such as a ServiceAccount with pull secrets.
type Placed struct {
	Ref
	Object   *unstructured.Unstructured
	Clusters []string
}

// Needs has the clusters in which a dependency is needed, and the workloads that need it there.
type Needs map[Ref]map[string][]string

// FindNeeds returns the dependencies of the workloads of a namespace, and the dependencies of these: the objects that
// they name, the objects that select their pods or scale them, and the Ingresses of Services. A Service without a
// selector is needed by all workloads, and so is an object that guards connections and selects none of them: it can be
// for the next pods. Objects are the roots in the namespace.
func FindNeeds(workloads []Placed, all map[Ref]*unstructured.Unstructured) Needs {
	n := &needs{objects: all, ingresses: map[string][]Ref{}, found: Needs{}}
	with := n.attach(workloads)
	for i, w := range workloads {
		n.workload = w
		n.name = w.String()
		n.seen = map[Ref]bool{w.Ref: true}
		n.follow(w.Object)
		for _, ref := range with[i] {
			n.need(Dependency{Ref: ref})
		}
	}
	for _, clusters := range n.found {
		for cluster, by := range clusters {
			slices.Sort(by)
			clusters[cluster] = slices.Compact(by) // a workload and its leaf have one name
		}
	}
	return n.found
}

// NeedsOf identifies what FindNeeds reads of a workload: what its pods name, and the labels by which others select
// them.
func NeedsOf(u *unstructured.Unstructured) string {
	pods, _ := podLabels(u)
	return fmt.Sprint(Dependencies(u), " ", pods)
}

type needs struct {
	objects   map[Ref]*unstructured.Unstructured
	ingresses map[string][]Ref // by the name of a Service
	found     Needs
	// workload is the one whose needs are found, name is the text of its Ref, and seen are the objects that it needs.
	workload Placed
	name     string
	seen     map[Ref]bool
}

// attach returns the objects that select the pods of each workload, or scale it.
func (n *needs) attach(workloads []Placed) map[int][]Ref {
	pods := indexOf(workloads)
	scaled := map[Target][]int{}
	for i, w := range workloads {
		target := TargetOf(w.Ref, w.Object)
		scaled[target] = append(scaled[target], i)
	}
	with := map[int][]Ref{}
	for ref, o := range n.objects {
		kind, _ := kinds.OfResource(ref.GroupResource)
		var attached []int
		switch {
		case ref.GroupResource == ingresses:
			for _, d := range Dependencies(o) {
				if d.GroupResource == services {
					n.ingresses[d.Name] = append(n.ingresses[d.Name], ref)
				}
			}
		case kind.TargetPath != nil:
			if target, ok := ScaledBy(o); ok {
				attached = scaled[target]
			}
		case kind.Selects != kinds.NoSelection:
			attached = pods.selected(o, kind)
		}
		for _, i := range attached {
			with[i] = append(with[i], ref)
		}
	}
	return with
}

func (n *needs) follow(u *unstructured.Unstructured) {
	for _, d := range Dependencies(u) {
		n.need(d)
	}
}

// Adds reports whether an object adds something to what each namespace of a cluster has by itself: users can only set
// something in the account default.
func Adds(ref Ref, u *unstructured.Unstructured) bool {
	if !kinds.IsEverywhere(ref.GroupResource, ref.Name) {
		return true
	}
	_, mounts := u.Object["automountServiceAccountToken"]
	return ref.Name == kinds.DefaultAccount && (mounts || len(objects(u.Object, "imagePullSecrets")) > 0 ||
		len(UsersOnly(u.GetLabels()))+len(UsersOnly(u.GetAnnotations())) > 0)
}

func (n *needs) need(d Dependency) {
	if n.seen[d.Ref] {
		return
	}
	n.seen[d.Ref] = true
	u := n.objects[d.Ref]
	if u == nil || !Adds(d.Ref, u) {
		return
	}
	if n.found[d.Ref] == nil {
		n.found[d.Ref] = map[string][]string{}
	}
	for _, c := range n.workload.Clusters {
		n.found[d.Ref][c] = append(n.found[d.Ref][c], n.name)
	}
	switch d.GroupResource {
	case ingresses: // it is needed where one of its Services is, and does not bring the others there
		for _, next := range Dependencies(u) {
			if next.GroupResource != services {
				n.need(next)
			}
		}
		return
	case services:
		for _, i := range n.ingresses[d.Name] {
			n.need(Dependency{Ref: i})
		}
	}
	n.follow(u)
}

// Target is what an autoscaler scales.
type Target struct {
	schema.GroupKind
	Name string
}

// TargetOf returns a workload as the target of an autoscaler.
func TargetOf(ref Ref, u *unstructured.Unstructured) Target {
	return Target{u.GroupVersionKind().GroupKind(), ref.Name}
}
