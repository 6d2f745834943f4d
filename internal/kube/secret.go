package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// prefix is that of kcpctl's labels, annotations and Secret types.
const prefix = v1alpha1.Group + "/"

// pkiPart is the part of the name of the Secret that keeps the PKI.
const pkiPart = "pki"

// The types of the Secrets that kcpctl keeps for itself.
const (
	typeInventory = corev1.SecretType(prefix + "inventory")
	typePKI       = corev1.SecretType(prefix + "pki")
)

// fieldManager is the name under which the API servers know kcpctl's fields.
const fieldManager = topology.ManagedBy

// newSecret is a Secret that kcpctl keeps for itself. It is no member of what the setup applies.
func (s *site) newSecret(setup, name string, t corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: s.Namespace,
			Labels: map[string]string{
				topology.LabelSetup:            setup,
				"app.kubernetes.io/managed-by": topology.ManagedBy,
			},
		},
		Type: t,
	}
}

// secret returns a Secret, or nil if it does not exist.
func (s *site) secret(ctx context.Context, name string) (*corev1.Secret, error) {
	o, err := s.get(ctx, known("Secret").GroupVersionKind, name)
	if o == nil || err != nil {
		return nil, err
	}
	return toSecret(o)
}

// writeSecret creates a Secret that has not been read, and updates one that has unless it has changed since. It returns
// what is written. Errors are those of the API server.
func (s *site) writeSecret(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
	if err != nil {
		return nil, err
	}
	client := s.resource(known("Secret").gvr())
	u := &unstructured.Unstructured{Object: o}
	if secret.ResourceVersion == "" {
		u, err = client.Create(ctx, u, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		u, err = client.Update(ctx, u, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return nil, err
	}
	return toSecret(u)
}

func toSecret(u *unstructured.Unstructured) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}
