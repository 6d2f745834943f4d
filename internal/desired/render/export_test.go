package render

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kcpctl/kcpctl/internal/client/kind"
)

// Strict fails if an object has a field that its type does not have. Rendering itself verifies only what an overlay was
// merged into, so that kcpctl does not link these types.
func Strict(o Object) error {
	if group := o.GroupVersionKind().Group; strings.HasSuffix(group, ".kcp.io") ||
		slices.Contains([]string{"apiextensions.k8s.io", "workloads.kcp.dev", kind.GroupMonitoring}, group) {
		return nil // these types are no dependency
	}
	for _, into := range []any{
		&corev1.Namespace{}, &corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Service{}, &corev1.ServiceAccount{}, &corev1.PersistentVolumeClaim{},
		&networkingv1.Ingress{}, &networkingv1.NetworkPolicy{}, &policyv1.PodDisruptionBudget{}, &appsv1.Deployment{}, &appsv1.StatefulSet{},
		&autoscalingv2.HorizontalPodAutoscaler{},
		&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}, &rbacv1.Role{}, &rbacv1.RoleBinding{},
		&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
	} {
		if reflect.TypeOf(into).Elem().Name() == o.GetKind() {
			return strict(o.Object, into)
		}
	}
	return fmt.Errorf("no template renders a %s", o.GetKind())
}
