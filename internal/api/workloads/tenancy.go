package workloads

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// LabelTemplate is the label of objects that were made of Tenancy.Objects. Its value is the ID of the setup.
const LabelTemplate = Group + "/template"

// PlaceholderWorkspace stands for the value of LabelWorkspace of the namespace, in strings of Tenancy.Objects.
const PlaceholderWorkspace = "$(WORKSPACE)"

// templateResource is a kind that Tenancy.Objects may have.
type templateResource struct {
	schema.GroupVersionKind
	resource string
}

// templateResources are kinds that only restrict a namespace: an object in a template cannot give permissions to a
// tenant, or run something.
func templateResources() []templateResource {
	return []templateResource{
		{schema.GroupVersionKind{Version: "v1", Kind: "ResourceQuota"}, "resourcequotas"},
		{schema.GroupVersionKind{Version: "v1", Kind: "LimitRange"}, "limitranges"},
		{schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}, "networkpolicies"},
	}
}

// TemplateResources returns the resources of which the namespaces of workspaces can get objects.
func TemplateResources() (all []schema.GroupVersionResource) {
	for _, r := range templateResources() {
		all = append(all, r.GroupVersion().WithResource(r.resource))
	}
	return all
}

// TemplateResource returns the resource of a kind, if namespaces of workspaces can get objects of it.
func TemplateResource(gvk schema.GroupVersionKind) (_ schema.GroupVersionResource, ok bool) {
	for _, r := range templateResources() {
		if r.GroupVersionKind == gvk {
			return r.GroupVersion().WithResource(r.resource), true
		}
	}
	return schema.GroupVersionResource{}, false
}

// ForWorkspace returns an object of Tenancy.Objects for a namespace of a workspace.
func ForWorkspace(object map[string]any, workspace string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}
	replaceIn(u.Object, strings.NewReplacer(PlaceholderWorkspace, workspace))
	return u
}

// replaceIn replaces the placeholder in all strings below a value, and returns the value.
func replaceIn(value any, placeholder *strings.Replacer) any {
	switch v := value.(type) {
	case string:
		return placeholder.Replace(v)
	case map[string]any:
		for key := range v {
			v[key] = replaceIn(v[key], placeholder)
		}
	case []any:
		for i := range v {
			v[i] = replaceIn(v[i], placeholder)
		}
	}
	return value
}

// TemplateObjects returns the objects of the namespaces of workspaces.
func (c *Cluster) TemplateObjects() []v1alpha1.NamespaceObject {
	if c.Spec.Tenancy == nil {
		return nil
	}
	return c.Spec.Tenancy.Objects
}

// NodeSelector returns the labels of the nodes on which pods of workspaces run.
func (c *Cluster) NodeSelector() map[string]string {
	if c.Spec.Tenancy == nil || c.Spec.Tenancy.Pods == nil {
		return nil
	}
	return c.Spec.Tenancy.Pods.NodeSelector
}
