package kcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// CannotServe reports whether a shard process that started at a time refuses the requests to the logical cluster,
// because it has left the process.
func (l LogicalCluster) CannotServe(shard, started string) bool {
	return started != "" && l.left[shard] == started
}

// Leave notes that a logical cluster of the client's server is about to leave it. The server is the process of a shard
// that has started at a time.
func (c *Client) Leave(ctx context.Context, cluster, shard, started string) error {
	l, err := c.Cluster(ctx, cluster)
	if err != nil {
		return err
	}
	left := maps.Clone(l.left)
	if left == nil {
		left = map[string]string{}
	}
	left[shard] = started
	raw, err := json.Marshal(left)
	if err != nil {
		return err
	}
	return c.mergeCluster(ctx, cluster, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{leftAnnotation: string(raw)}},
	})
}

// startMetric is the metric with the time when a process has started, in seconds since 1970 (Prometheus:
// process_collector.go).
const startMetric = "process_start_time_seconds "

// Started returns when the process of the client's server has started, as its metrics have it. It needs
// system:masters.
func (c *Client) Started(ctx context.Context) (string, error) {
	metrics, err := c.Open(ctx, "/metrics")
	if err != nil {
		return "", err
	}
	defer metrics.Close()
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), startMetric); ok {
			return value, nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("read the metrics: %w", err)
	}
	return "", fmt.Errorf("the metrics have no %s", strings.TrimSpace(startMetric))
}
