package kcp

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// BindRoles binds cluster roles to a group in a workspace, one ClusterRoleBinding <name>-<role> each.
func (c *Client) BindRoles(ctx context.Context, path, name, group string, roles []string) error {
	ws, err := c.workspace(path)
	if err != nil {
		return err
	}
	for _, role := range roles {
		b := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1",
			"kind":       "ClusterRoleBinding",
			"metadata":   map[string]any{"name": name + "-" + role},
			"roleRef":    map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
			"subjects": []any{
				map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group},
			},
		}}
		_, err := ws.Resource(bindingResource).Apply(ctx, b.GetName(), b, metav1.ApplyOptions{FieldManager: "kcpctl", Force: true})
		if err != nil {
			return fmt.Errorf("bind cluster role %s in workspace %s: %w", role, path, err)
		}
	}
	return nil
}
