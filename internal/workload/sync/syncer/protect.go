package syncer

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// protected returns an error if the first pods of a workload would be in the cluster before a NetworkPolicy that the
// cluster gets. The controller gives a cluster the workload last, but leaves of a restored backup appear together. It
// reads from kcp, because a watch of one resource can be behind the watch of another.
func (s *syncer) protected(ctx context.Context, i item, leaf watch.Object) error {
	if k, _ := kinds.OfResource(i.GroupResource()); k.Template == nil || s.present(i, leaf) != nil {
		return nil
	}
	namespace := api.DownstreamNamespace(s.Setup, i.Cluster, i.Namespace)
	for _, r := range s.synced() {
		if k, _ := kinds.OfResource(r.GroupResource()); !k.Guards {
			continue
		}
		client, err := s.up.Resource(leaf.Endpoint, i.Cluster, r)
		if err != nil {
			return err
		}
		list, err := client.Namespace(i.Namespace).List(ctx,
			metav1.ListOptions{LabelSelector: api.LabelCluster + "=" + s.Cluster})
		if apierrors.IsNotFound(err) {
			continue // the workspace does not have the API
		}
		if err != nil {
			return fmt.Errorf("list %s of %s in kcp: %w", r.GroupResource(), i.Key, err)
		}
		for n := range list.Items {
			o := &list.Items[n]
			_, exists := s.down.Get(r, watch.Key{Namespace: namespace, Name: name(o)})
			if !exists && o.GetDeletionTimestamp() == nil {
				return fmt.Errorf("cluster %s does not have %s %s yet, which protects the pods of %s", s.Cluster,
					r.GroupResource(), name(o), i.Key)
			}
		}
	}
	return nil
}

// synced returns the synced resources, which are not changed.
func (s *syncer) synced() []schema.GroupVersionResource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resources
}
