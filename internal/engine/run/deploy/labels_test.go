package deploy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// Up keeps the labels of shards in kcp as the setup has them, and leaves those of others alone.
func TestLabelsOfShards(t *testing.T) {
	setup := func(labels string) *topology.Topology {
		return topologytest.Build(t, runtest.Minimal+"spec: {shards: [{name: alpha, labels: {"+labels+"}}, {name: beta}]}\n")
	}
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		up := func(labels string, only ...topology.ID) {
			t.Helper()
			w.Topology = setup(labels)
			w.Up.Topology = w.Topology
			w.Up.Options.Only = only
			w.Runtime.Use(w.Topology)
			w.MustRun(t)
		}
		up("region: us, zone: a")
		require.Equal(t, map[string]string{"region": "us", "zone": "a"}, w.Runtime.Kcp.Labels("alpha"))
		require.Empty(t, w.Runtime.Kcp.Labels("beta"))

		w.Runtime.Kcp.Label("alpha", "team", "x")
		patches := len(w.Runtime.Kcp.Requests(fakekcp.PatchShard))
		up("region: us, zone: a")
		require.Empty(t, w.Runtime.Calls(), "nothing has changed")

		up("region: eu", "shard/beta", "base/default")
		require.Equal(t, "us", w.Runtime.Kcp.Labels("alpha")["region"], "the run is about another shard")
		require.Len(t, w.Runtime.Kcp.Requests(fakekcp.PatchShard), patches)

		w.Up.Options.DryRun = true
		up("region: eu")
		require.Len(t, w.Runtime.Kcp.Requests(fakekcp.PatchShard), patches)
		require.Contains(t, w.Notes(), "shard/alpha: labels in kcp change from region=us,zone=a to region=eu")

		w.Up.Options.DryRun = false
		up("region: eu")
		require.Equal(t, map[string]string{"region": "eu", "team": "x"}, w.Runtime.Kcp.Labels("alpha"))

		up("")
		require.Equal(t, map[string]string{"team": "x"}, w.Runtime.Kcp.Labels("alpha"))
		up("")
		require.Empty(t, w.Runtime.Calls())
	})
}

// Where each shard owns its Shard object, labels are a flag, and up waits until the shard has registered with them.
func TestLabelsOfShardsThatOwnThem(t *testing.T) {
	const next = runtest.Minimal + "spec: {version: v0.33.0, shards: [{name: alpha, labels: {zone: a, region: us}}]}\n"
	inWorld(t, next, func(t *testing.T, w *world) {
		w.Runtime.Kcp.OwnShards()
		waited := false
		w.OnEach = func(e run.Event) {
			if strings.Contains(e.Message, "shard alpha has not registered with the label region=us yet") {
				waited = true
				w.Runtime.Kcp.Label("alpha", "region", "us")
				w.Runtime.Kcp.Label("alpha", "zone", "a")
			}
		}
		w.MustRun(t)
		require.True(t, waited)
		objects, err := w.Runtime.Objects(t.Context())
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

// The region of a cluster reaches the shards of a running installation.
func TestRegionsOfShards(t *testing.T) {
	setup := func(region string) *topology.Topology {
		return topologytest.Build(t, runtest.Minimal+"spec: {clusters: [{name: default, region: "+region+"}], shards: [{name: alpha, labels: {region: own}}]}\n")
	}
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		for _, region := range []string{"eu", "us"} {
			w.Topology = setup(region)
			w.Up.Topology = w.Topology
			w.Runtime.Use(w.Topology)
			w.MustRun(t)
			require.Equal(t, map[string]string{"region": region}, w.Runtime.Kcp.Labels("root"))
			require.Equal(t, map[string]string{"region": "own"}, w.Runtime.Kcp.Labels("alpha"))
		}
	})
}

// No object shows the labels, so that a comparison of objects does not find an edit of them.
func TestARunForCertificatesLeavesEditedLabels(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.Topology = topologytest.Build(t, runtest.Minimal+"spec: {shards: [{name: alpha, labels: {region: us}}]}\n")
		w.Up.Topology = w.Topology
		w.Runtime.Use(w.Topology)
		w.Up.Options.Unedited = []byte("the edited setup")
		_, err := w.Run(t)
		require.ErrorIs(t, err, deploy.ErrUnapplied)
		require.ErrorContains(t, err, ": other labels of shard/alpha")
		require.Empty(t, w.Runtime.Calls())
		require.Empty(t, w.Runtime.Kcp.Labels("alpha"))
	})
}

// A run that ended between its record and the labels is completed by the next one, also where it was to remove some.
func TestLabelsAfterAnInterruption(t *testing.T) {
	inWorld(t, runtest.Minimal+"spec: {rootShard: {labels: {region: us}}}\n", func(t *testing.T, w *world) {
		w.MustRun(t)
		require.Equal(t, map[string]string{"region": "us"}, w.Runtime.Kcp.Labels("root"))
		w.Topology = topologytest.Build(t, runtest.Minimal)
		w.Up.Topology = w.Topology
		w.Runtime.Use(w.Topology)
		w.Runtime.Kcp.Script(fakekcp.Readyz, fakekcp.Hang())
		w.Up.Options.Timeout = 1
		_, err := w.Run(t)
		require.Error(t, err)
		require.Equal(t, "us", w.Runtime.Kcp.Labels("root")["region"])
		w.Up.Options.Timeout = 0
		w.MustRun(t)
		require.Empty(t, w.Runtime.Kcp.Labels("root"))
	})
}
