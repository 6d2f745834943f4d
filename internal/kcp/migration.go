package kcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/kcpapi"
)

var (
	apiBindingResource = kcpapi.APIBinding.GVR()
	migrationResource  = kcpapi.LogicalClusterMigration.GVR()
)

// The migration API has to be bound in a workspace before it can be used there.
const (
	migrationExport  = "migration.kcp.io"
	migrationBinding = "kcpctl-migration"
)

// CanMigrate reports whether the client's server, which is a shard, has the feature gate LogicalClusterMigration on.
// Only then does it have a handler for dumps of logical clusters, which refuses all clients but other shards (kcp:
// pkg/server/migrationdump). Nothing is dumped.
func (c *Client) CanMigrate(ctx context.Context) (bool, error) {
	hc, err := c.http()
	if err != nil {
		return false, fmt.Errorf("client for %s: %w", c.config.Host, err)
	}
	url := c.config.Host + "/clusters/system:admin/apis/migration.kcp.io/v1alpha1/logicalclusterdumps"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return false, fmt.Errorf("query the feature gate LogicalClusterMigration: %w", err)
	}
	resp, err := hc.Do(req)
	if err != nil {
		return false, fmt.Errorf("query the feature gate LogicalClusterMigration: %w", err)
	}
	return resp.StatusCode == http.StatusForbidden, resp.Body.Close()
}

// BindMigration binds the migration API in the root workspace, and waits until it is served. The client's server is the
// root shard.
func (c *Client) BindMigration(ctx context.Context, report func(reason string)) error {
	root, err := c.workspace(RootWorkspace)
	if err != nil {
		return err
	}
	binding := kcpapi.APIBinding.New(migrationBinding)
	binding.Object["spec"] = map[string]any{"reference": map[string]any{"export": map[string]any{"path": RootWorkspace, "name": migrationExport}}}
	_, err = root.Resource(apiBindingResource).Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("bind %s: %w", migrationExport, err)
	}
	err = poll(ctx, report, func() error {
		b, err := root.Resource(apiBindingResource).Get(ctx, migrationBinding, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(b.Object, "status", "phase"); phase != "Bound" {
			return errors.New("not yet bound")
		}
		_, err = root.Resource(migrationResource).List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("bind %s: %w", migrationExport, err)
	}
	return nil
}

// UnbindMigration undoes BindMigration, unless there are migrations left.
func (c *Client) UnbindMigration(ctx context.Context) error {
	root, err := c.workspace(RootWorkspace)
	if err != nil {
		return err
	}
	left, err := root.Resource(migrationResource).List(ctx, metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		return err
	}
	err = root.Resource(apiBindingResource).Delete(ctx, migrationBinding, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("unbind %s: %w", migrationExport, err)
	}
	return nil
}

// Migrate moves a logical cluster to another shard and waits until it has moved. Requests to it fail until then. A
// migration that is in progress continues. BindMigration must be called before.
func (c *Client) Migrate(ctx context.Context, cluster, shard string, report func(reason string)) error {
	root, err := c.workspace(RootWorkspace)
	if err != nil {
		return err
	}
	migrations := root.Resource(migrationResource)
	name := "kcpctl-" + strings.ReplaceAll(cluster, ":", "-")
	m := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "migration.kcp.io/v1alpha1", "kind": "LogicalClusterMigration",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"logicalCluster": cluster, "destinationShard": shard},
	}}
	failed := ""
	err = poll(ctx, report, func() error {
		now, err := migrations.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			if now, err = migrations.Create(ctx, m, metav1.CreateOptions{}); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(now.Object, "status", "phase")
		switch phase {
		case "Completed":
			return nil
		case "Failed":
			failed = withReason("migration failed", now)
			return nil
		}
		return errors.New(withReason(cmp.Or(phase, "pending"), now))
	})
	if err != nil {
		return err
	}
	if err := migrations.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete migration %s: %w", name, err)
	}
	if failed != "" {
		return errors.New(failed)
	}
	return nil
}
