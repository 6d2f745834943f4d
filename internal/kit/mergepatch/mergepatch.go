// Package mergepatch sends JSON merge patches to API servers.
package mergepatch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Client is a client for the objects of a resource, such as one of client-go's package dynamic.
type Client interface {
	Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions,
		subresources ...string) (*unstructured.Unstructured, error)
}

// Send merges a patch into an object, and returns the result. It fails with a conflict if the object has another UID,
// unless the UID is empty.
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
	return to.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: manager}, subresources...)
}
