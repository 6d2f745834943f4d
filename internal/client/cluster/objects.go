package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
)

// Resource is the client for a resource in the setup's namespace.
func (c *Client) Resource(r schema.GroupVersionResource) dynamic.ResourceInterface {
	return c.Dynamic.Resource(r).Namespace(c.Namespace)
}

// For is the client for a kind: in the setup's namespace, unless the kind is cluster-scoped. The version of an
// optional kind is the one that Serves has found.
func (c *Client) For(k kind.Kind) dynamic.ResourceInterface {
	r := k.GVR()
	if version, ok := c.versions.Load(r); ok && version != "" {
		r.Version = version.(string)
	}
	if k.ClusterScoped {
		return c.Dynamic.Resource(r)
	}
	return c.Resource(r)
}

// Ref names an object of a kind on the cluster.
func (c *Client) Ref(k kind.Kind, name string) plan.Ref {
	ref := plan.Ref{Cluster: c.Name, GroupVersionKind: k.GroupVersionKind, Name: name}
	if !k.ClusterScoped {
		ref.Namespace = c.Namespace
	}
	return ref
}

// Get returns an object, or nil if it does not exist.
func (c *Client) Get(ctx context.Context, k kind.Kind, name string) (*unstructured.Unstructured, error) {
	if served, err := c.Serves(ctx, k); !served || err != nil {
		return nil, err
	}
	o, err := c.For(k).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, c.Explain(err, "read %s %s", k.Kind, name)
	}
	o.SetGroupVersionKind(k.GroupVersionKind)
	return slim(o), nil
}

// ReadObject returns an object of any kind with a regular plural, or nil if it does not exist.
func (c *Client) ReadObject(ctx context.Context, gvk schema.GroupVersionKind,
	namespace, name string) (*unstructured.Unstructured, error) {
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	o, err := c.Dynamic.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return slim(o), c.Explain(err, "read %s %s", gvk.Kind, name)
}

// List returns the objects of a kind in the setup's namespace that match a label selector.
func (c *Client) List(ctx context.Context, k kind.Kind, selector string) ([]unstructured.Unstructured, error) {
	if served, err := c.Serves(ctx, k); !served || err != nil {
		return nil, err
	}
	l, err := c.For(k).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, c.Explain(err, "list %s", k.Resource)
	}
	for i := range l.Items {
		slim(&l.Items[i]).SetGroupVersionKind(k.GroupVersionKind)
	}
	return l.Items, nil
}

// Pods returns the pods that match a label selector.
func (c *Client) Pods(ctx context.Context, selector string) ([]*corev1.Pod, error) {
	all, err := c.List(ctx, kind.Pod, selector)
	if err != nil {
		return nil, err
	}
	out := make([]*corev1.Pod, len(all))
	for i := range all {
		out[i] = &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(all[i].Object, out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ReadNamespace returns the setup's namespace: nil if it does not exist, and an empty object if the user may not read
// it. It fails if the namespace is being deleted.
func (c *Client) ReadNamespace(ctx context.Context) (*unstructured.Unstructured, error) {
	ns, err := c.For(kind.Namespace).Get(ctx, c.Namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return &unstructured.Unstructured{Object: map[string]any{}}, nil
	case err != nil:
		return nil, c.Explain(err, "read Namespace/%s", c.Namespace)
	case ns.GetDeletionTimestamp() != nil:
		return nil, c.Terminating()
	}
	return ns, nil
}

// ErrTerminating means that a setup's namespace is being deleted.
var ErrTerminating = errors.New("is being deleted")

// Terminating is the error for a setup's namespace that is being deleted.
func (c *Client) Terminating() error {
	return clierr.New(clierr.Failed, "wait until it is gone: "+c.Kubectl("wait --for=delete namespace/"+c.Namespace),
		"Namespace/%s (%s) %w", c.Namespace, c.Where(), ErrTerminating)
}

// slim removes from an object what kcpctl never reads: its managed fields, about half of the memory that it takes.
func slim(o *unstructured.Unstructured) *unstructured.Unstructured {
	if o != nil {
		unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
	}
	return o
}

// Apply sends an object to the API server for server-side apply. The error is the API server's: see Rejected. Fields
// that Scale has set are no conflict.
func (c *Client) Apply(
	ctx context.Context, o *unstructured.Unstructured, opts object.ApplyOptions,
) (*unstructured.Unstructured, error) {
	out, err := c.apply(ctx, o, opts)
	if !opts.Force && ownConflict(err) {
		opts.Force = true
		return c.apply(ctx, o, opts)
	}
	return out, err
}

// ownConflict reports whether an error is a conflict with kcpctl's own field manager, and with no other. The API server
// tells an update from an apply by the same manager.
func ownConflict(err error) bool {
	all := plan.ConflictsOf(plan.Ref{}, err)
	return len(all) > 0 && !slices.ContainsFunc(all, func(o plan.Conflict) bool {
		return !slices.Contains([]string{object.FieldManager, NamespaceManager, replicasManager}, o.Manager)
	})
}

func (c *Client) apply(
	ctx context.Context, o *unstructured.Unstructured, opts object.ApplyOptions,
) (*unstructured.Unstructured, error) {
	k, err := kind.Of(o.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if !k.Negotiated() {
		out, err := object.Apply(ctx, c.For(k), o, opts)
		return slim(out), err
	}
	version, err := c.servedVersion(ctx, k)
	if err != nil {
		return nil, err
	}
	if version == "" {
		return nil, c.NotServed(k)
	}
	as := o.DeepCopy()
	as.SetAPIVersion(k.Group + "/" + version)
	out, err := object.Apply(ctx, c.For(k), as, opts)
	if err == nil {
		out.SetGroupVersionKind(k.GroupVersionKind)
	}
	return slim(out), err
}

// Scale sets only spec.replicas of an object. Apply sets it again: kcpctl is never in conflict with itself.
func (c *Client) Scale(ctx context.Context, k kind.Kind, name string,
	replicas int32) (*unstructured.Unstructured, error) {
	out, err := mergepatch.Send(ctx, c.For(k), object.FieldManager, name, "", map[string]any{
		"spec": map[string]any{"replicas": replicas},
	})
	return out, c.Explain(err, "scale %s/%s/%s", k.Kind, c.Namespace, name)
}

// NamespaceManager is the field manager of the metadata with which kcpctl creates a namespace.
const NamespaceManager = object.FieldManager + "-namespace"

// LeaveNamespace leaves NamespaceManager only one annotation of the namespace. What an apply sets as well remains
// otherwise when it is no longer wanted: the API server counts the creation as another manager's.
func (c *Client) LeaveNamespace(ctx context.Context, annotation string) error {
	live, err := c.For(kind.Namespace).Get(ctx, c.Namespace, metav1.GetOptions{})
	if err != nil {
		return c.Explain(err, "read Namespace/%s", c.Namespace)
	}
	fields := live.GetManagedFields()
	at := slices.IndexFunc(fields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == NamespaceManager })
	if at < 0 {
		return nil
	}
	own := fmt.Appendf(nil, `{"f:metadata":{"f:annotations":{".":{},"f:%s":{}}}}`, annotation)
	if fields[at].FieldsV1 != nil && bytes.Equal(fields[at].FieldsV1.Raw, own) {
		return nil
	}
	fields[at].FieldsV1 = &metav1.FieldsV1{Raw: own}
	_, err = mergepatch.Send(ctx, c.For(kind.Namespace), NamespaceManager, c.Namespace, "", map[string]any{
		"metadata": map[string]any{"resourceVersion": live.GetResourceVersion(), "managedFields": fields},
	})
	if apierrors.IsConflict(err) {
		return nil // the next change does it: nothing depends on it
	}
	return c.Explain(err, "patch Namespace/%s", c.Namespace)
}

// replicasManager is the field manager of the replicas that kcpctl leaves to others.
const replicasManager = object.FieldManager + "-replicas"

// LeaveReplicas gives the replicas of an object another field manager. If only kcpctl has set them, an apply without
// them would set the default of Kubernetes. The next client that scales the object becomes their manager.
func (c *Client) LeaveReplicas(ctx context.Context, ref plan.Ref) error {
	k, err := kind.Of(ref.GroupVersionKind)
	if err != nil {
		return err
	}
	live, err := c.For(k).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return c.Explain(err, "read %s", ref)
	}
	if !setsReplicas(live) {
		return nil
	}
	n, _, _ := unstructured.NestedInt64(live.Object, "spec", "replicas")
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": n}}}
	o.SetGroupVersionKind(k.GroupVersionKind)
	o.SetName(ref.Name)
	o.SetUID(live.GetUID()) // an object that was replaced is refused
	_, err = c.For(k).Apply(ctx, ref.Name, o, metav1.ApplyOptions{FieldManager: replicasManager})
	if len(plan.ConflictsOf(ref, err)) > 0 {
		return nil // it was scaled in the meantime
	}
	return c.Explain(err, "leave the replicas of %s to others", ref)
}

// setsReplicas reports whether kcpctl is a field manager of the replicas of an object.
func setsReplicas(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		var fields struct {
			Spec struct {
				Replicas *struct{} `json:"f:replicas"`
			} `json:"f:spec"`
		}
		return m.Manager == object.FieldManager && m.FieldsV1 != nil &&
			json.Unmarshal(m.FieldsV1.Raw, &fields) == nil && fields.Spec.Replicas != nil
	})
}

// NewSecret returns a Secret that kcpctl keeps for itself. It is not one of the objects that the setup applies.
func (c *Client) NewSecret(setup, name string, t corev1.SecretType) *corev1.Secret {
	secret := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: c.Namespace,
			Labels: map[string]string{
				topology.LabelSetup:            setup,
				"app.kubernetes.io/managed-by": topology.ManagedBy,
			},
		},
		Type: t,
	}
	c.AddTo(secret)
	return secret
}

// Secret returns a Secret, or nil if it does not exist.
func (c *Client) Secret(ctx context.Context, name string) (*corev1.Secret, error) {
	o, err := c.Get(ctx, kind.Secret, name)
	if o == nil || err != nil {
		return nil, err
	}
	return ToSecret(o)
}

// WriteSecret creates a Secret that has no resourceVersion, and updates any other unless it has changed since it was
// read. It returns what was written. The error is the API server's.
func (c *Client) WriteSecret(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	return out, c.Write(ctx, kind.Secret.GVR(), secret, out)
}

// Write creates or updates an object as WriteSecret does, and decodes what was written into out.
func (c *Client) Write(ctx context.Context, r schema.GroupVersionResource, in, out metav1.Object) error {
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(in)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: o}
	if in.GetResourceVersion() == "" {
		u, err = c.Resource(r).Create(ctx, u, metav1.CreateOptions{FieldManager: object.FieldManager})
	} else {
		u, err = c.Resource(r).Update(ctx, u, metav1.UpdateOptions{FieldManager: object.FieldManager})
	}
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}

// ToSecret decodes a Secret.
func ToSecret(u *unstructured.Unstructured) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}
