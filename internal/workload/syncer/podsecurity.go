package syncer

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// level returns the level of the Pod Security Standards of the Cluster.
func (s *syncer) level() api.PodSecurity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.podSecurity
}

// secure sets the level of the Cluster in namespaces that have another one: it has changed, or someone has changed a namespace. Pods that
// run stay.
func (s *syncer) secure(ctx context.Context) {
	level := s.level()
	for _, ns := range s.down.List(namespaces) {
		if ns.GetLabels()[api.LabelPodSecurity] == string(level) || ns.GetDeletionTimestamp() != nil || level == "" {
			continue
		}
		if err := s.setLevel(ctx, ns, level); err != nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Cannot set the Pod Security Standard of a namespace", "namespace", ns.GetName(), "level", level)
		}
	}
}

func (s *syncer) setLevel(ctx context.Context, ns watch.Object, level api.PodSecurity) error {
	client, err := s.below(namespaces, "")
	if err != nil {
		return err
	}
	return markNamespace(ctx, client, ns.Unstructured, "labels", api.LabelPodSecurity, string(level))
}
