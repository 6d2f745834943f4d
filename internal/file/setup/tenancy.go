package setup

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// selector checks which workspaces may use a cluster.
func (v workloadFields) selector(p *field.Path, s *v1alpha1.WorkspaceSelector) {
	if s == nil {
		return
	}
	if len(s.Paths) == 0 {
		v.required(p.Child("paths"), "without paths, no workspace may use the cluster")
	}
	for i, path := range s.Paths {
		at := p.Child("paths").Index(i)
		v.workspacePath(at, path)
		v.unique(at, path)
	}
}

// namespaceObject is the schema of an object for the namespaces of workspaces.
type namespaceObject[Spec any] struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec Spec `json:"spec"`
}

// networkPolicySpec has the fields of the spec of a NetworkPolicy (kubernetes: staging/src/k8s.io/api/networking/v1).
// Linking that package would make kcpctl 1 % larger.
type networkPolicySpec struct {
	PodSelector metav1.LabelSelector `json:"podSelector"`
	PolicyTypes []string             `json:"policyTypes"`
	Ingress     []struct {
		From  []networkPeer `json:"from"`
		Ports []networkPort `json:"ports"`
	} `json:"ingress"`
	Egress []struct {
		To    []networkPeer `json:"to"`
		Ports []networkPort `json:"ports"`
	} `json:"egress"`
}

type networkPeer struct {
	PodSelector       *metav1.LabelSelector `json:"podSelector"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
	IPBlock           *struct {
		CIDR   string   `json:"cidr"`
		Except []string `json:"except"`
	} `json:"ipBlock"`
}

type networkPort struct {
	Protocol string             `json:"protocol"`
	Port     intstr.IntOrString `json:"port"`
	EndPort  int32              `json:"endPort"`
}

// namespaceSchemas are the kinds of objects for the namespaces of workspaces, with their schemas.
var namespaceSchemas = map[string]reflect.Type{
	"ResourceQuota": reflect.TypeFor[namespaceObject[corev1.ResourceQuotaSpec]](),
	"LimitRange":    reflect.TypeFor[namespaceObject[corev1.LimitRangeSpec]](),
	"NetworkPolicy": reflect.TypeFor[namespaceObject[networkPolicySpec]](),
}

// namespaceSchema returns the schema of an object for the namespaces of workspaces. The validator refuses objects of
// other kinds.
func namespaceSchema(n *yaml.Node) reflect.Type {
	if kind := lookup(n, "kind"); kind != nil && namespaceSchemas[kind.Value] != nil {
		return namespaceSchemas[kind.Value]
	}
	return reflect.TypeFor[map[string]any]()
}

// tenancy checks what the namespaces of workspaces have in a cluster, and what their pods may request.
func (v workloadFields) tenancy(p *field.Path, t *v1alpha1.Tenancy) {
	if t == nil {
		return
	}
	for i, o := range t.Objects {
		v.namespaceObject(p.Child("objects").Index(i), o)
	}
	if t.Pods == nil {
		return
	}
	pods := p.Child("pods")
	for i, name := range t.Pods.PriorityClasses {
		at := pods.Child("priorityClasses").Index(i)
		v.subdomain(at, name)
		v.unique(at, name)
	}
	for i, key := range t.Pods.TolerationKeys {
		at := pods.Child("tolerationKeys").Index(i)
		for _, problem := range validation.IsQualifiedName(key) {
			v.invalid(at, key, "%s", problem)
		}
		v.unique(at, key)
	}
	v.labelMap(pods.Child("nodeSelector"), t.Pods.NodeSelector)
}

// namespaceObject checks an object for the namespaces of workspaces.
func (v workloadFields) namespaceObject(p *field.Path, object v1alpha1.NamespaceObject) {
	o := &unstructured.Unstructured{Object: object}
	if _, ok := api.TemplateResource(o.GroupVersionKind()); !ok {
		v.invalid(p.Child("kind"), o.GetKind(), "must be ResourceQuota or LimitRange with apiVersion v1, or "+
			"NetworkPolicy with apiVersion networking.k8s.io/v1: the syncer has no permissions for other kinds")
		return
	}
	if o.GetName() == "" {
		v.required(p.Child("metadata", "name"), "")
		return
	}
	v.subdomain(p.Child("metadata", "name"), o.GetName())
	v.unique(p.Child("metadata", "name"), o.GetKind()+" "+o.GetName())
	for key := range o.GetLabels() {
		if strings.HasPrefix(key, api.Group+"/") {
			v.invalid(p.Child("metadata", "labels").Key(key), key, "kcpctl sets the labels of %s itself", api.Group)
		}
	}
}
