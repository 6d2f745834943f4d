package syncer

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// level returns the level of the Pod Security Standards of the Cluster.
func (s *syncer) level() api.PodSecurity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.podSecurity
}

// secure sets the level of the Cluster in namespaces that have another one: it has changed, or someone has changed a
// namespace. Running pods continue to run. It also sets the name of the Cluster, which can have another one since it
// was registered again.
func (s *syncer) secure(ctx context.Context) {
	level := s.level()
	if level == "" || s.blocked() != nil {
		return
	}
	for _, ns := range s.down.List(namespaces) {
		for key, value := range map[string]string{api.LabelPodSecurity: string(level), api.LabelCluster: s.Cluster} {
			if ns.GetLabels()[key] == value || ns.GetDeletionTimestamp() != nil {
				continue
			}
			if err := s.label(ctx, ns, key, value); err != nil && !apierrors.IsNotFound(err) {
				klog.FromContext(ctx).Error(err, "Cannot label a namespace", "namespace", ns.GetName(), "label",
					key, "value", value)
			}
		}
	}
}

func (s *syncer) label(ctx context.Context, ns watch.Object, key, value string) error {
	client, err := s.below(namespaces, "")
	if err != nil {
		return err
	}
	return mark(ctx, client, ns.Unstructured, "labels", key, value)
}
