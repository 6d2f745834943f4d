package record_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

func TestAgentsOfARecord(t *testing.T) {
	const widgets, gadgets = topology.ID("agent/widgets"), topology.ID("agent/gadgets")
	at := func(cluster string) record.Agent {
		return record.Agent{Cluster: cluster, Namespace: "agents", Workspace: "root:widgets", APIExport: "widgets"}
	}
	known := at("eu")
	known.ClusterUID = "1"
	r := &record.Record{Installation: "demo-1", Agents: map[topology.ID]record.Agent{widgets: known}}

	next := r.With(ensured(t, &pki.State{}), nil)
	require.Equal(t, r.Agents, next.Agents)
	next.SetAgents(map[topology.ID]record.Agent{widgets: at("eu")}, false)
	require.Equal(t, known, next.Agents[widgets], "the same cluster")
	next.SetAgents(map[topology.ID]record.Agent{widgets: at("us")}, false)
	require.Equal(t, at("us"), next.Agents[widgets])
	require.Equal(t, known, r.Agents[widgets], "the other record does not change")
	require.Equal(t, known, next.WithPlaced(r).Agents[widgets], "until the run has finished")

	next.SetAgents(map[topology.ID]record.Agent{gadgets: at("us")}, true)
	require.Len(t, next.Agents, 2)
	next.SetAgents(nil, true, widgets)
	require.Equal(t, map[topology.ID]record.Agent{gadgets: at("us")}, next.Agents)
	require.Equal(t, map[topology.ID]record.Agent{gadgets: at("us"), widgets: at("eu")},
		next.WithAgents(map[topology.ID]record.Agent{gadgets: at("eu"), widgets: at("eu")}).Agents)
	next.SetAgents(nil, false)
	require.Empty(t, next.Agents)

	orphaned := known
	orphaned.Orphaned = true
	other := r.WithAgents(nil)
	require.True(t, r.Equal(other))
	other.Agents[widgets] = orphaned
	require.False(t, r.Equal(other))
	raw, err := other.Encode("v1.0.0", nil)
	require.NoError(t, err)
	decoded, err := record.Decode(raw)
	require.NoError(t, err)
	require.Equal(t, other.Agents, decoded.Agents)
}

func TestPlaceOfAnAgent(t *testing.T) {
	for want, a := range map[string]record.Agent{
		"namespace kcp of cluster eu":     {Cluster: "eu", Namespace: "kcp"},
		"namespace agents of cluster svc": {Place: topology.OnServiceCluster("svc"), Namespace: "agents"},
		"workspace root:svc":              {Place: "root:svc", Namespace: "default"},
		"this machine":                    {},
	} {
		require.Equal(t, want, a.String())
	}
}
