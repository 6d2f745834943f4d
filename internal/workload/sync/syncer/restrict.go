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
)

// reserved are the ConfigMaps that namespaces of some clusters have by themselves, besides kinds.IsEverywhere:
// controllers of the cluster would change them back.
var reserved = []string{"openshift-service-ca.crt", "istio-ca-root-cert"}

// isReserved reports whether objects of users do not replace an object. The account of pods that name none can have
// pull secrets of users.
func isReserved(gr schema.GroupResource, name string) bool {
	return kinds.IsEverywhere(gr, name) && name != kinds.DefaultAccount ||
		gr == schema.GroupResource{Resource: "configmaps"} && slices.Contains(reserved, name)
}

// allowed returns the object for the physical cluster that a leaf stands for, as the cluster permits it.
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
	c, _ := s.seen()
	if denied := restrict(s.Cluster, c.NodeSelector(), object); denied != nil {
		return nil, denied
	}
	return object, nil
}

// restrict adds the node selector of the Cluster to an object, or returns why a cluster does not get it, whatever its
// tenancy is. Other rules for pods are in the cluster, because they are also for pods that controllers make there.
func restrict(cluster string, nodes map[string]string, o *unstructured.Unstructured) *refusal {
	r := restriction{cluster: cluster}
	pod := kinds.PodSpec(o)
	if pod == nil {
		return nil
	}
	r.pod(pod)
	if template, _ := kinds.PodTemplate(o); o.GetKind() != "Pod" {
		r.template("the pod template", template)
	}
	templates, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	for _, template := range templates {
		r.template("spec.volumeClaimTemplates", template)
	}
	if r.refused == nil && len(nodes) > 0 {
		r.selectNodes(pod, nodes)
	}
	return r.refused
}

// restriction checks an object. The first thing that is not permitted counts.
type restriction struct {
	cluster string
	refused *refusal
}

// refuse refuses an object.
func (r *restriction) refuse(format string, args ...any) {
	if r.refused == nil {
		r.refused = &refusal{api.ReasonNotAllowed, fmt.Sprintf(format, args...) +
			" is not permitted in cluster " + r.cluster + ": remove it"}
	}
}

// pod checks a pod spec.
func (r *restriction) pod(spec map[string]any) {
	if node, _ := spec["nodeName"].(string); node != "" {
		r.refuse("nodeName %s of a pod, which passes by the scheduler,", node)
	}
	volumes, _ := spec["volumes"].([]any)
	for _, item := range volumes {
		volume, _ := item.(map[string]any)
		ephemeral, _ := volume["ephemeral"].(map[string]any)
		r.template("spec.volumes", ephemeral["volumeClaimTemplate"])
	}
}

// template checks a template of pods or of PersistentVolumeClaims. With labels and annotations of kcpctl, an object
// that the cluster makes of it would look like an object of the syncer.
func (r *restriction) template(where string, template any) {
	t, _ := template.(map[string]any)
	spec, _ := t["spec"].(map[string]any)
	if volume, _ := spec["volumeName"].(string); volume != "" {
		r.refuse("volumeName %s in %s, which can be the volume of another workspace,", volume, where)
	}
	metadata, _ := t["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		values, _ := metadata[field].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if domain, _, _ := strings.Cut(key, "/"); domain == api.Group {
				r.refuse("%s in the %s of %s", key, field, where)
			}
		}
	}
}

// selectNodes adds the node selector of the Cluster to a pod spec.
func (r *restriction) selectNodes(spec map[string]any, nodes map[string]string) {
	selector, _ := spec["nodeSelector"].(map[string]any)
	out := map[string]any{}
	maps.Copy(out, selector)
	for k, v := range nodes {
		if has, ok := out[k]; ok && has != v {
			r.refused = &refusal{api.ReasonNotAllowed, fmt.Sprintf(
				"nodeSelector %s=%v is not permitted in cluster %s, whose spec.tenancy.pods.nodeSelector is %s=%s: "+
					"remove it, or ask the administrator to change that",
				k, has, r.cluster, k, v)}
			return
		}
		out[k] = v
	}
	spec["nodeSelector"] = out
}
