package run_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
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

// Where each shard owns its Shard object, labels are a flag, and up waits until the shard has registered with them.
func TestLabelsOfShardsThatOwnThem(t *testing.T) {
	const next = minimal + "spec: {version: v0.33.0, shards: [{name: alpha, labels: {zone: a, region: us}}]}\n"
	inWorld(t, next, func(t *testing.T, w *world) {
		w.rt.Kcp.OwnShards()
		waited := false
		w.onEach = func(e run.Event) {
			if strings.Contains(e.Message, "shard alpha has not registered with the label region=us yet") {
				waited = true
				w.rt.Kcp.Label("alpha", "region", "us")
				w.rt.Kcp.Label("alpha", "zone", "a")
			}
		}
		w.mustRun(t)
		require.True(t, waited)
		objects, err := w.rt.Objects(t.Context())
		require.NoError(t, err)
		var args []string
		for _, it := range objects {
			raw, err := json.Marshal(it.Live)
			require.NoError(t, err)
			if strings.Contains(string(raw), `"--shard-labels=region=us,zone=a"`) {
				args = append(args, it.Kind+"/"+it.Name)
			}
		}
		require.Equal(t, []string{"Deployment/demo-shard-alpha"}, args)
	})
}

// kcp cannot forget a shard that owns its Shard object: nothing is cordoned, moved or deleted.
func TestRemoveShardRefusesAnOwner(t *testing.T) {
	inWorld(t, minimal+"spec: {version: v0.33.0, shards: [{name: alpha}, {name: beta}]}\n", func(t *testing.T, w *world) {
		const refusal = "kcp v0.33.0 has no way to remove the Shard object of a shard that is gone (kcp#4336), and would schedule workspaces there"
		r := w.removal(t)
		_, err := r.Check(t.Context(), true)
		require.EqualError(t, err, refusal)
		requireError(t, r.Run(t.Context()), clierr.Failed, refusal)
		require.Equal(t, []string{"Lock", "Unlock"}, w.rt.Calls())
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
