package run_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// Up keeps the labels of shards in kcp as the setup has them, and leaves those of others alone.
func TestLabelsOfShards(t *testing.T) {
	setup := func(labels string) *topology.Topology {
		return topologytest.Build(t, minimal+"spec: {shards: [{name: alpha, labels: {"+labels+"}}, {name: beta}]}\n")
	}
	inWorld(t, sharded, func(t *testing.T, w *world) {
		up := func(labels string, only ...topology.ID) {
			t.Helper()
			w.top = setup(labels)
			w.up.Topology = w.top
			w.up.Options.Only = only
			w.rt.Use(w.top)
			w.mustRun(t)
		}
		up("region: us, zone: a")
		require.Equal(t, map[string]string{"region": "us", "zone": "a"}, w.rt.Kcp.Labels("alpha"))
		require.Empty(t, w.rt.Kcp.Labels("beta"))

		w.rt.Kcp.Label("alpha", "team", "x")
		patches := len(w.rt.Kcp.Requests(fakekcp.PatchShard))
		up("region: us, zone: a")
		require.Empty(t, w.rt.Calls(), "nothing has changed")

		up("region: eu", "shard/beta", "base/default")
		require.Equal(t, "us", w.rt.Kcp.Labels("alpha")["region"], "the run is about another shard")
		require.Len(t, w.rt.Kcp.Requests(fakekcp.PatchShard), patches)

		w.up.Options.DryRun = true
		up("region: eu")
		require.Len(t, w.rt.Kcp.Requests(fakekcp.PatchShard), patches)
		require.Contains(t, w.notes(), "shard/alpha: labels in kcp change from region=us,zone=a to region=eu")

		w.up.Options.DryRun = false
		up("region: eu")
		require.Equal(t, map[string]string{"region": "eu", "team": "x"}, w.rt.Kcp.Labels("alpha"))

		up("")
		require.Equal(t, map[string]string{"team": "x"}, w.rt.Kcp.Labels("alpha"))
		up("")
		require.Empty(t, w.rt.Calls())
	})
}

// The region of a cluster reaches the shards of a running installation.
func TestRegionsOfShards(t *testing.T) {
	setup := func(region string) *topology.Topology {
		return topologytest.Build(t, minimal+"spec: {clusters: [{name: default, region: "+region+"}], shards: [{name: alpha, labels: {region: own}}]}\n")
	}
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		for _, region := range []string{"eu", "us"} {
			w.top = setup(region)
			w.up.Topology = w.top
			w.rt.Use(w.top)
			w.mustRun(t)
			require.Equal(t, map[string]string{"region": region}, w.rt.Kcp.Labels("root"))
			require.Equal(t, map[string]string{"region": "own"}, w.rt.Kcp.Labels("alpha"))
		}
	})
}

// No object shows the labels, so that a comparison of objects does not find an edit of them.
func TestARunForCertificatesLeavesEditedLabels(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.top = topologytest.Build(t, minimal+"spec: {shards: [{name: alpha, labels: {region: us}}]}\n")
		w.up.Topology = w.top
		w.rt.Use(w.top)
		w.up.Options.Unedited = []byte("the edited setup")
		_, err := w.run(t)
		require.ErrorIs(t, err, run.ErrUnapplied)
		require.ErrorContains(t, err, ": other labels of shard/alpha")
		require.Empty(t, w.rt.Calls())
		require.Empty(t, w.rt.Kcp.Labels("alpha"))
	})
}

// A run that ended between its record and the labels is completed by the next one, also where it was to remove some.
func TestLabelsAfterAnInterruption(t *testing.T) {
	inWorld(t, minimal+"spec: {rootShard: {labels: {region: us}}}\n", func(t *testing.T, w *world) {
		w.mustRun(t)
		require.Equal(t, map[string]string{"region": "us"}, w.rt.Kcp.Labels("root"))
		w.top = topologytest.Build(t, minimal)
		w.up.Topology = w.top
		w.rt.Use(w.top)
		w.rt.Kcp.Script(fakekcp.Readyz, fakekcp.Hang())
		w.up.Options.Timeout = 1
		_, err := w.run(t)
		require.Error(t, err)
		require.Equal(t, "us", w.rt.Kcp.Labels("root")["region"])
		w.up.Options.Timeout = 0
		w.mustRun(t)
		require.Empty(t, w.rt.Kcp.Labels("root"))
	})
}

// notes are the remarks of the last run.
func (w *world) notes() []string {
	var out []string
	for _, e := range w.events {
		if e.Scope == run.Note {
			out = append(out, e.Message)
		}
	}
	return out
}
