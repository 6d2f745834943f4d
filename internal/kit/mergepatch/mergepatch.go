// Package mergepatch sends JSON merge patches to API servers.
package mergepatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Client is a client for the objects of a resource, such as one of client-go's package dynamic.
type Client interface {
	Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions,
		subresources ...string) (*unstructured.Unstructured, error)
}

// Send merges a patch into an object, and returns the result. It fails with a conflict if the object has another UID,
// unless the UID is empty. API servers ignore the UID in a patch of the status of a custom resource: then the other
// object has the status. A patch with the resourceVersion prevents that.
func Send(ctx context.Context, to Client, manager, name string, uid types.UID, patch map[string]any,
	subresources ...string) (*unstructured.Unstructured, error) {
	if uid != "" {
		metadata := map[string]any{}
		if has, ok := patch["metadata"].(map[string]any); ok {
			maps.Copy(metadata, has)
		}
		metadata["uid"] = string(uid)
		patch = maps.Clone(patch)
		patch["metadata"] = metadata
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("patch %s: %w", name, err)
	}
	live, err := to.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: manager},
		subresources...)
	other := live != nil && live.GetUID() != "" && live.GetUID() != uid
	if uid != "" && (ChangesUID(err) || other) {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "object"}, name,
			errors.New("it has another UID: it was created again"))
	}
	return live, err
}

// ChangesUID reports whether an API server refuses a patch, or an apply, because the object has another UID.
func ChangesUID(err error) bool {
	status := apierrors.APIStatus(nil)
	return apierrors.IsInvalid(err) && errors.As(err, &status) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes,
			func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}
