package syncer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

// reserved are the names, by resource, that namespaces of some clusters have by themselves, besides kinds.IsEverywhere:
// controllers of the cluster, or the syncer, would change them back.
var reserved = map[schema.GroupResource][]string{
	{Resource: "configmaps"}:        {"openshift-service-ca.crt", "istio-ca-root-cert"},
	resourceQuotas.GroupResource():  {guardName},
	limitRanges.GroupResource():     {guardName},
	networkPolicies.GroupResource(): {guardName},
}

// isReserved reports whether objects of users do not replace an object. The account of pods that name none can have
// pull secrets of users.
func isReserved(gr schema.GroupResource, name string) bool {
	return kinds.IsEverywhere(gr, name) && name != kinds.DefaultAccount || slices.Contains(reserved[gr], name)
}

// allowed returns the object for the physical cluster that a leaf stands for, as the Cluster permits it.
func (s *syncer) allowed(i item, leaf *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	object := s.transform(leaf)
	if n := object.GetName(); isReserved(i.GroupResource(), n) {
		return nil, &refusal{api.ReasonNameCollision, fmt.Sprintf(
			"each namespace of cluster %s has %s %s by itself, and objects of users do not replace it: "+
				"rename the object",
			s.Cluster, i.GroupResource(), n)}
	}
	t := tenant{s.Setup, i.Cluster, s.Cluster}
	t.peers(object)
	if denied := t.affinity(kinds.PodSpec(object)); denied != nil {
		return nil, denied
	}
	c := s.guards.seen()
	if c == nil {
		return object, nil
	}
	object, denied := restrict(c, object)
	if denied != nil {
		return nil, denied
	}
	return object, nil
}

// restrict returns an object with the additions of the Cluster's tenancy, or why it is not permitted. The object may be
// changed.
func restrict(c *api.Cluster, o *unstructured.Unstructured) (*unstructured.Unstructured, *refusal) {
	var t api.Tenancy
	if c.Spec.Tenancy != nil {
		t = *c.Spec.Tenancy
	}
	r := restriction{cluster: c.Name, Tenancy: t}
	switch pod := splitter.PodSpec(o); {
	case o.GroupVersionKind().GroupKind() == networkPolicyKind && c.Isolation() == api.IsolationWorkspace:
		if cidr := unreadable(o); cidr != "" {
			return o, &refusal{api.ReasonInvalid, fmt.Sprintf(
				"cidr %q in spec.egress is not a range of addresses in the usual form, such as 10.0.0.0/8: correct it",
				cidr)}
		}
		hideMetadata(o)
	case pod != nil:
		r.pod(pod)
		if template, _ := kinds.PodTemplate(o); o.GetKind() != "Pod" {
			r.marks("the pod template", template)
		}
		templates, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
		for _, template := range templates {
			r.claim("spec.volumeClaimTemplates", template)
			r.marks("spec.volumeClaimTemplates", template)
		}
	}
	return o, r.refused
}

// restriction looks at an object. The first thing that is not permitted counts.
type restriction struct {
	api.Tenancy
	cluster string
	refused *refusal
}

// refuse refuses an object because of a field. The administrator can permit it with a field of the Cluster, if there is
// one.
func (r *restriction) refuse(what, field, value string) {
	if r.refused != nil {
		return
	}
	message := fmt.Sprintf("%s is not permitted in cluster %s: remove it", what, r.cluster)
	if field != "" {
		message += fmt.Sprintf(", or ask the administrator to add %s to spec.tenancy.%s of Cluster %s",
			value, field, r.cluster)
	}
	r.refused = &refusal{api.ReasonNotAllowed, message}
}

// pod looks at a pod spec, and adds the node selector.
func (r *restriction) pod(spec map[string]any) {
	if node, _ := spec["nodeName"].(string); node != "" {
		r.refuse("nodeName "+node+" of a pod, which passes by the scheduler,", "", "")
	}
	if class, _ := spec["priorityClassName"].(string); class != "" && !slices.Contains(r.PriorityClasses, class) {
		r.refuse("priorityClassName "+class, "priorityClasses", class)
	}
	tolerations, _ := spec["tolerations"].([]any)
	for _, item := range tolerations {
		toleration, _ := item.(map[string]any)
		switch key, _ := toleration["key"].(string); {
		case key == "":
			r.refuse("a toleration without a key, which tolerates all taints,", "", "")
		case !slices.Contains(r.TolerationKeys, key):
			r.refuse("a toleration of "+key, "tolerationKeys", key)
		}
	}
	volumes, _ := spec["volumes"].([]any)
	for _, item := range volumes {
		volume, _ := item.(map[string]any)
		ephemeral, _ := volume["ephemeral"].(map[string]any)
		r.claim("spec.volumes", ephemeral["volumeClaimTemplate"])
		r.marks("spec.volumes", ephemeral["volumeClaimTemplate"])
	}
	r.selectNodes(spec)
}

// claim looks at the template of a PersistentVolumeClaim.
func (r *restriction) claim(where string, template any) {
	t, _ := template.(map[string]any)
	spec, _ := t["spec"].(map[string]any)
	if volume, _ := spec["volumeName"].(string); volume != "" {
		r.refuse(fmt.Sprintf("volumeName %s in %s, which can be the volume of another workspace,",
			volume, where), "", "")
	}
}

// marks refuses labels and annotations of kcpctl in a template: with them, an object that the cluster makes of the
// template would look like an object of the syncer.
func (r *restriction) marks(where string, template any) {
	t, _ := template.(map[string]any)
	metadata, _ := t["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		values, _ := metadata[field].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if domain, _, _ := strings.Cut(key, "/"); domain == api.Group {
				r.refuse(fmt.Sprintf("%s in the %s of %s", key, field, where), "", "")
			}
		}
	}
}

// selectNodes adds the node selector of the Cluster to a pod spec.
func (r *restriction) selectNodes(spec map[string]any) {
	if len(r.NodeSelector) == 0 || r.refused != nil {
		return
	}
	selector, _ := spec["nodeSelector"].(map[string]any)
	out := map[string]any{}
	for k, v := range selector {
		out[k] = v
	}
	for k, v := range r.NodeSelector {
		if has, ok := out[k]; ok && has != v {
			r.refused = &refusal{api.ReasonNotAllowed, fmt.Sprintf(
				"nodeSelector %s=%v is not permitted in cluster %s, whose spec.tenancy.nodeSelector is %s=%s: "+
					"remove it, or ask the administrator to change that",
				k, has, r.cluster, k, v)}
			return
		}
		out[k] = v
	}
	spec["nodeSelector"] = out
}
