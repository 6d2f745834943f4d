package syncer

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// hasPrefix is the prefix of annotations of namespaces in a physical cluster: one for each resource of which the namespace has had an
// object. A namespace is removed only if the syncer looks at all of them: an API that is not synced any longer does not make
// its objects unknown, also after a restart.
const hasPrefix = "has." + api.Group + "/"

// hasKey returns the annotation for a resource.
func hasKey(gr schema.GroupResource) string {
	name := gr.String()
	if len(name) > validation.DNS1123LabelMaxLength {
		name = api.Hash(12, name)
	}
	return hasPrefix + name
}

// removable reports whether a namespace has had only objects of resources that are synced. It is not if that was never recorded.
func removable(ns *unstructured.Unstructured, resources []schema.GroupVersionResource) bool {
	synced := map[string]bool{}
	for _, r := range resources {
		synced[hasKey(r.GroupResource())] = true
	}
	recorded := false
	for key := range ns.GetAnnotations() {
		if !strings.HasPrefix(key, hasPrefix) {
			continue
		}
		if recorded = true; !synced[key] {
			return false
		}
	}
	return recorded
}

// ensureNamespace creates the namespace that stands for a namespace of a logical cluster, and records that it has objects of a resource.
// It fails with a refusal if there is a namespace with the name that stands for something else: nothing is written to it.
func (s *syncer) ensureNamespace(ctx context.Context, i item) error {
	want, has := api.DownstreamLabels(s.Setup, i.Cluster, i.Namespace), hasKey(i.GroupResource())
	ns := api.DownstreamNamespace(s.Setup, i.Cluster, i.Namespace)
	if known, ok := s.down.Get(namespaces, watch.Key{Name: ns}); ok && known.GetDeletionTimestamp() == nil && contains(known.GetLabels(), want) {
		if _, recorded := known.GetAnnotations()[has]; recorded {
			return nil
		}
	}
	client, err := s.below(namespaces, "")
	if err != nil {
		return err
	}
	live, err := client.Get(ctx, ns, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		err = s.createNamespace(ctx, client, ns, want, has)
	case err != nil:
	case !contains(live.GetLabels(), want):
		return &refusal{api.ReasonNamespaceCollision, fmt.Sprintf(
			"namespace %s of cluster %s does not belong to namespace %s of workspace %s: delete it, or rename the namespace in the workspace",
			ns, s.Cluster, i.Namespace, i.Cluster)}
	case live.GetDeletionTimestamp() != nil:
		// changedNamespace tries again when it is gone.
		return &refusal{api.ReasonNamespaceTerminating, fmt.Sprintf(
			"namespace %s of cluster %s is being deleted: if that does not end, see the conditions of the namespace there", ns, s.Cluster)}
	default:
		err = s.record(ctx, client, live, has)
	}
	if err != nil {
		return fmt.Errorf("namespace %s of cluster %s: %w", ns, s.Cluster, err)
	}
	return nil
}

func (s *syncer) createNamespace(ctx context.Context, client dynamic.ResourceInterface, name string, labels map[string]string, has string) error {
	s.guards.forget(name) // those of a former namespace of the name
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	u.SetName(name)
	labels[api.LabelCluster], labels[api.LabelPodSecurity] = s.Cluster, string(s.level())
	u.SetLabels(labels)
	u.SetAnnotations(map[string]string{has: "true"})
	_, err := client.Create(ctx, u, metav1.CreateOptions{FieldManager: api.ManagerSyncer})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	live, err := client.Get(ctx, name, metav1.GetOptions{}) // another worker was faster
	if err != nil {
		return err
	}
	return s.record(ctx, client, live, has)
}

// record records that a namespace has objects of a resource.
func (s *syncer) record(ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured, has string) error {
	if _, ok := live.GetAnnotations()[has]; ok {
		return nil
	}
	return markNamespace(ctx, client, live, "annotations", has, "true")
}

// markNamespace sets a label or an annotation of a namespace, if it still is the one that was seen.
func markNamespace(ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured, where, key, value string) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": string(live.GetUID()), where: map[string]any{key: value}}})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, live.GetName(), types.MergePatchType, raw, metav1.PatchOptions{FieldManager: api.ManagerSyncer})
	return err
}

// contains reports whether labels have all the wanted values.
func contains(labels, want map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}
