package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// A data directory keeps its ID as long as it exists. One that was deleted and created again has another, and one of an
// earlier release gets an ID with the next run.
func TestDataDirectoriesHaveAnID(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	const name = "components/demo-shard-alpha/data/etcd"
	dir := m.layout().path(name)
	ids := func() map[string]string {
		found, err := m.open(file()).rt.Storage(t.Context(), map[topology.ID]record.Data{"shard/alpha": {Directory: dir}, "cache-server": {}})
		require.NoError(t, err)
		require.NotContains(t, found, topology.ID("cache-server"))
		return found["shard/alpha"].Volumes
	}
	first := ids()
	require.NotEmpty(t, first[name])
	m.up(file())
	m.down(file())
	require.Equal(t, first, ids(), "as the data does, it stays")

	require.NoError(t, os.RemoveAll(dir))
	require.Empty(t, ids())
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "member"), 0o700))
	require.Equal(t, map[string]string{name: ""}, ids(), "data of an earlier release, or restored without its ID")

	rec := &record.Record{Installation: "demo-1", Data: map[topology.ID]record.Data{"shard/alpha": {Volumes: ids()}, "etcd/x": {Volumes: map[string]string{"gone": ""}}}}
	require.NoError(t, m.open(file()).rt.Begin(t.Context(), &plan.Plan{}, rec))
	second := ids()
	require.NotEmpty(t, second[name])
	require.NotEqual(t, first, second)
	require.NoDirExists(t, m.layout().path("gone"))

	require.NoError(t, m.open(file()).rt.Keep(t.Context(), rec.Purge("etcd/x")))
	kept, err := m.open(file()).rt.Record(t.Context())
	require.NoError(t, err)
	require.Len(t, kept.Data, 1)
}
