package fakekcp

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

func bindingObject() map[string]any {
	return map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
		"metadata": map[string]any{"name": "x"}, "status": map[string]any{"phase": "Bound"},
	}
}

func (c *Cluster) object() map[string]any {
	notes := map[string]any{"kcp.io/cluster": c.Name(), "kcp.io/path": c.Path}
	for key, value := range c.Annotations {
		notes[key] = value
	}
	at := strings.LastIndex(c.Path, ":")
	owner := map[string]any{"resource": "workspaces", "cluster": parentOf(c.Path[:at]), "name": c.Path[at+1:]}
	return map[string]any{
		"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster",
		"metadata": map[string]any{"name": "cluster", "annotations": notes},
		"spec":     map[string]any{"owner": owner},
		"status":   map[string]any{"phase": c.Phase},
	}
}

// parentOf is the name of the logical cluster with a path.
func parentOf(path string) string {
	if path == "root" {
		return path
	}
	return Cluster{Path: path}.Name()
}

func (m *Moves) list(shard string) Answer {
	items := []any{}
	for _, name := range slices.Sorted(maps.Keys(m.on[shard])) {
		items = append(items, m.on[shard][name].object())
	}
	return list("core.kcp.io/v1alpha1", "LogicalClusterList", items)
}

// workspaces are all Workspace objects; they are on the root shard.
func (m *Moves) workspaces(shard string) Answer {
	items := []any{}
	for _, there := range m.on {
		for _, c := range there {
			at := strings.LastIndex(c.Path, ":")
			if shard != "root" || c.Path[at+1:] == "orphan" {
				continue
			}
			selector := map[string]any{}
			for key, value := range c.Selector {
				selector[key] = value
			}
			notes := map[string]any{"kcp.io/cluster": parentOf(c.Path[:at])}
			location := map[string]any{"selector": map[string]any{"matchLabels": selector}}
			items = append(items, map[string]any{
				"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
				"metadata": map[string]any{"name": c.Path[at+1:], "annotations": notes},
				"spec":     map[string]any{"location": location},
			})
		}
	}
	return list("tenancy.kcp.io/v1alpha1", "WorkspaceList", items)
}

func (g *migration) answer(name string) Answer {
	conditions := []any{}
	if g.failure != "" {
		kind, reason := "DataCopied", "CopyFailed"
		if g.phase == "Failed" {
			kind, reason = "OriginReady", "LogicalClusterAlreadyMigrating"
		}
		conditions = append(conditions, map[string]any{"type": kind, "status": "False", "reason": reason, "message": g.failure})
	}
	for kind, is := range map[string]bool{"DataCopied": g.copied && g.failure == "", "OriginCleaned": g.cleaned} {
		if is {
			conditions = append(conditions, map[string]any{"type": kind, "status": "True"})
		}
	}
	meta := map[string]any{"name": name, "annotations": g.annotations}
	return Answer{http.StatusOK, map[string]any{
		"apiVersion": "migration.kcp.io/v1alpha1", "kind": "LogicalClusterMigration", "metadata": meta,
		"spec":   map[string]any{"logicalCluster": g.cluster, "destinationShard": g.to},
		"status": map[string]any{"phase": g.phase, "originShard": g.from, "conditions": conditions},
	}}
}
