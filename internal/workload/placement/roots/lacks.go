package roots

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// lacks returns the message about what a root needs that does not exist, or that is not in its clusters. It is
// empty if nothing is lacking.
func (f *followers) lacks(i item, root watch.Object) string {
	var missing []splitter.Ref
	refused := ""
	for _, d := range splitter.Dependencies(root.Unstructured) {
		if d.Optional {
			continue
		}
		r, ok := f.resource(d.GroupResource)
		if !ok {
			missing = append(missing, d.Ref)
			continue
		}
		switch o, exists := f.set().Get(r, watch.Key{Cluster: i.Cluster, Namespace: i.Namespace, Name: d.Name}); {
		case exists:
			if reason, message := problemOf(o.Unstructured); reason == api.ReasonLeafRefused {
				refused = cmp.Or(refused, fmt.Sprintf("%s: %s", d.Ref, message))
			}
			refused = cmp.Or(refused, f.unsynced(i, root.Unstructured, item{r, watch.KeyOf(o.Unstructured)}))
		case f.set().ListedAt(watch.Source{Endpoint: root.Endpoint, Resource: r}): // otherwise it may exist
			missing = append(missing, d.Ref)
		}
	}
	if len(missing) > 0 {
		return describe(missing)
	}
	return cmp.Or(refused, f.misnamed(i, root.Unstructured))
}

// misnamed returns the message about a Service that a container names with its namespace, which has another name in
// clusters, or "". What a container reads from a ConfigMap is not known. The message has no other text of the
// container.
func (f *followers) misnamed(i item, root *unstructured.Unstructured) string {
	names := splitter.ServiceNames(root)
	services, ok := f.resource(corev1.Resource("services"))
	if len(names) == 0 || !ok {
		return ""
	}
	for _, n := range names {
		if _, ok := f.set().Get(services, watch.Key{Cluster: i.Cluster, Namespace: n.Namespace, Name: n.Service}); !ok {
			continue
		}
		use := n.Service + "." + api.DownstreamNamespace(f.Setup, i.Cluster, n.Namespace)
		if n.Namespace == i.Namespace {
			use = n.Service
		}
		return fmt.Sprintf("a container names Service %[1]s as %[1]s.%[2]s, and clusters do not have this name, "+
			"because namespace %[2]s has another name there: use %[3]s", n.Service, n.Namespace, use)
	}
	return ""
}

// unsynced returns the message about a leaf that a root needs, and that its syncer cannot write to its cluster, or "".
func (f *followers) unsynced(i item, root *unstructured.Unstructured, needed item) string {
	last, _ := f.decisions.of(i)
	on := slices.Concat(last.clusters, placedOn(root))
	slices.Sort(on)
	for _, cluster := range slices.Compact(on) {
		leaf, ok := f.beside(needed, api.LeafName(needed.Name, cluster))
		if !ok {
			continue
		}
		if problem := api.SyncProblem(leaf.Unstructured); problem != "" {
			return fmt.Sprintf("cluster %s does not have %s: %s", cluster,
				splitter.Ref{GroupResource: needed.GroupResource(), Name: needed.Name}, problem)
		}
	}
	return ""
}

func describe(missing []splitter.Ref) string {
	var names []string
	for _, m := range missing {
		names = append(names, m.String())
	}
	if len(names) == 1 {
		return fmt.Sprintf("%s does not exist: create it in this namespace", names[0])
	}
	return fmt.Sprintf("%s do not exist: create them in this namespace", strings.Join(names, ", "))
}

// stale reports whether the condition of a workload is not what it lacks now.
func stale(root *unstructured.Unstructured, lacks string) bool {
	reason, message := problemOf(root)
	if reason != api.ReasonDependencyMissing {
		return lacks != "" && (reason == "" || reason == api.ReasonScheduled)
	}
	return message != lacks
}

// problemOf returns the reason and the message of the condition Scheduled, or of the annotation that stands for it.
func problemOf(root *unstructured.Unstructured) (reason, message string) {
	if text, ok := root.GetAnnotations()[api.AnnotationScheduleError]; ok {
		reason, message, _ = strings.Cut(text, ": ")
		return reason, message
	}
	if c := api.ConditionIn(root, api.ConditionScheduled); c != nil {
		return c.Reason, c.Message
	}
	return "", ""
}
