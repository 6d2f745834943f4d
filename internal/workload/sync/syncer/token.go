package syncer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

// afterAccount fails while the ServiceAccount of a Secret with a token is not in the cluster: the cluster deletes such
// a Secret.
func (s *syncer) afterAccount(ctx context.Context, desired *unstructured.Unstructured) error {
	account := splitter.TokenOf(desired)
	if account == "" {
		return nil
	}
	client, err := s.below(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), desired.GetNamespace())
	if err != nil {
		return err
	}
	_, err = client.Get(ctx, account, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("namespace %s of cluster %s does not have ServiceAccount %s, for which Secret %s has a "+
			"token: create it in the workspace", desired.GetNamespace(), s.Cluster, account, desired.GetName())
	case err != nil:
		return fmt.Errorf("read ServiceAccount %s/%s of cluster %s: %w", desired.GetNamespace(), account, s.Cluster,
			err)
	}
	return nil
}
