// Package object applies and deletes one object of an API server: of a cluster of the setup, of a workspace, or of a
// physical cluster.
package object

import (
	"context"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// FieldManager is the field manager of all objects that kcpctl applies.
const FieldManager = topology.ManagedBy

// ApplyOptions are the options of Apply.
type ApplyOptions struct {
	DryRun bool
	// Force takes over fields that other managers own.
	Force bool
}

// Apply sends an object for server-side apply, and returns the result.
func Apply(ctx context.Context, client dynamic.ResourceInterface, o *unstructured.Unstructured,
	opts ApplyOptions) (*unstructured.Unstructured, error) {
	meta := metav1.ApplyOptions{FieldManager: FieldManager, Force: opts.Force}
	if opts.DryRun {
		meta.DryRun = []string{metav1.DryRunAll}
	}
	return client.Apply(ctx, o.GetName(), o, meta)
}

// Delete deletes an object only if it is still the one that was seen, with the same content. Controllers keep writing
// its status and annotations of kcp, which does not count as a change. An object that is gone or has been replaced is
// not an error. An object that was changed is a conflict.
func Delete(ctx context.Context, client dynamic.ResourceInterface, seen *unstructured.Unstructured,
	what fmt.Stringer) error {
	return deleteIf(ctx, client, seen, what, func(live *unstructured.Unstructured) bool {
		return plan.Same(withoutInternal(seen), withoutInternal(live))
	})
}

// DeleteUnchanged deletes an object as Delete does, but any change is a conflict: in an object that seems to be unused,
// even a new status can be a sign that it is used after all.
func DeleteUnchanged(ctx context.Context, client dynamic.ResourceInterface, seen *unstructured.Unstructured,
	what fmt.Stringer) error {
	return deleteIf(ctx, client, seen, what, func(*unstructured.Unstructured) bool { return false })
}

// deleteIf deletes an object that was seen. same reports whether one with another resourceVersion may be deleted, too.
func deleteIf(ctx context.Context, client dynamic.ResourceInterface, seen *unstructured.Unstructured,
	what fmt.Stringer, same func(live *unstructured.Unstructured) bool) error {
	uid, version, background := seen.GetUID(), seen.GetResourceVersion(), metav1.DeletePropagationBackground
	for {
		err := client.Delete(ctx, seen.GetName(), metav1.DeleteOptions{
			PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
		if !apierrors.IsConflict(err) {
			return ignoreNotFound(err)
		}
		live, err := client.Get(ctx, seen.GetName(), metav1.GetOptions{})
		switch {
		case err != nil:
			return ignoreNotFound(err)
		case live.GetUID() != uid:
			return nil
		case live.GetDeletionTimestamp() == nil && !same(live):
			return clierr.New(clierr.Conflict, "rerun the command: it reads the objects again",
				"%s was changed after this run read it, and was not deleted", what)
		}
		version = live.GetResourceVersion()
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// internalPrefix is the prefix of annotations that kcp itself writes: it marks the ClusterRoles and bindings that it
// replicates, also when another one is deleted (kcp: pkg/reconciler/cache/labelclusterrolebindings,
// ReplicateAnnotationKey).
const internalPrefix = "internal.kcp.io/"

// withoutInternal returns an object without the annotations that kcp itself writes.
func withoutInternal(o *unstructured.Unstructured) *unstructured.Unstructured {
	out, all := o.DeepCopy(), o.GetAnnotations()
	maps.DeleteFunc(all, func(key, _ string) bool { return strings.HasPrefix(key, internalPrefix) })
	if len(all) == 0 {
		all = nil
	}
	out.SetAnnotations(all)
	return out
}
