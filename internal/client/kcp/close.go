package kcp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
)

// The phases of a LogicalCluster.
const (
	// PhaseReady is the phase of a logical cluster in use.
	PhaseReady = "Ready"
	// phaseClosed is the phase in which every replica of a shard refuses the requests of all clients, also of service
	// accounts and of virtual workspaces. It is in etcd, so a restart does not end it, and a copy of the logical
	// cluster has it too. No controller of kcp changes it. Only system:masters is let through, which front-proxies drop
	// (kcp: pkg/authorization/workspace_content_authorizer.go).
	phaseClosed = "Unavailable"
)

// closeCluster closes a logical cluster on the client's server until openCluster. It can be repeated.
func (c *Client) closeCluster(ctx context.Context, cluster, shard string) error {
	l, err := c.Cluster(ctx, cluster)
	if err != nil {
		return err
	}
	if l.Moving && l.Phase == phaseClosed {
		return nil
	}
	if !l.Moving && l.Phase != PhaseReady {
		return fmt.Errorf("it is %s", l.Phase)
	}
	return c.patchCluster(ctx, cluster, shard, phaseClosed)
}

// openCluster ends closeCluster on the client's server. It does not change a logical cluster that was not closed.
func (c *Client) openCluster(ctx context.Context, cluster string) error {
	l, err := c.Cluster(ctx, cluster)
	if err != nil || !l.Moving {
		return err
	}
	return c.patchCluster(ctx, cluster, nil, PhaseReady)
}

// Reopen opens a logical cluster on the client's server that an interrupted move has left closed, and which is no
// longer in a migration.
func (c *Client) Reopen(ctx context.Context, cluster string) error {
	if err := c.openCluster(ctx, cluster); err != nil {
		return fmt.Errorf("open %s: %w", cluster, err)
	}
	return nil
}

// patchCluster sets the phase, and marks the logical cluster as moving to a shard as long as it is closed. The mark is
// there before the phase, and goes after it, so that an interruption is noticed.
func (c *Client) patchCluster(ctx context.Context, cluster string, shard any, phase string) error {
	mark := func() error {
		notes := map[string]any{movingAnnotation: shard}
		return c.mergeCluster(ctx, cluster, map[string]any{"metadata": map[string]any{"annotations": notes}})
	}
	set := func() error {
		return c.mergeCluster(ctx, cluster, map[string]any{"status": map[string]any{"phase": phase}}, "status")
	}
	steps := []func() error{mark, set}
	if shard == nil {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) mergeCluster(ctx context.Context, cluster string, patch map[string]any, subresources ...string) error {
	at := c.clusterResource(cluster)
	_, err := mergepatch.Send(ctx, at, object.FieldManager, kcpapi.LogicalClusterName, "", patch, subresources...)
	return err
}

// isClosed reports whether the client's server refuses a request to a logical cluster for what it is closed by, or
// because it does not have it. The client is an administrator without system:masters.
func (c *Client) isClosed(ctx context.Context, cluster string) (bool, error) {
	a, err := c.Get(ctx, "/clusters/"+cluster+"/api/v1/namespaces?limit=1", nil)
	if err != nil {
		return false, err
	}
	switch a.Code {
	case http.StatusForbidden, http.StatusNotFound:
		return true, nil
	case http.StatusOK:
		return false, nil
	}
	return false, fmt.Errorf("%d %s: %s", a.Code, http.StatusText(a.Code), strings.TrimSpace(a.Message))
}
