package deploy_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// storages are changes of the storage behind the back of kcpctl.
var storages = map[string]struct {
	setup  string
	change func(w *world)
	want   []string // the components that are refused
}{
	"the volume of an etcd is gone": {managed, func(w *world) { w.Runtime.SetVolume("default/kcp/data-demo-etcd-alpha-0", "") }, []string{"etcd/alpha"}},
	"it is another one":             {managed, func(w *world) { w.Runtime.SetVolume("default/kcp/data-demo-etcd-root-0", "new") }, []string{"etcd/root"}},
	"of an embedded etcd":           {embedded, func(w *world) { w.Runtime.SetVolume("default/kcp/demo-shard-alpha-data", "") }, []string{"shard/alpha"}},
	"all volumes are gone": {managed, func(w *world) {
		for at := range w.Runtime.Volumes() {
			w.Runtime.SetVolume(at, "")
		}
	}, []string{"etcd/alpha", "etcd/root"}},
	"the cluster is another one": {places, func(w *world) {
		w.Runtime.SetCluster("us", "uid-of-another")
		w.Runtime.SetVolume("us/kcp/data-demo-etcd-beta-0", "")
	}, []string{"etcd/beta", "shard/beta"}},
	"the record is lost": {managed, func(w *world) {
		w.Runtime.SetRecord(func(*record.Record) *record.Record { return nil })
	}, []string{"etcd/alpha", "etcd/root"}},
	"a component is not in the record": {managed, func(w *world) {
		w.Runtime.SetRecord(func(r *record.Record) *record.Record { return r.Purge("etcd/alpha", "shard/alpha") })
	}, []string{"etcd/alpha"}},
}

// kcp's front-proxies do not see what is created on a shard with other data until they restart.
func TestFrontProxiesRestartWhenAShardLeavesItsData(t *testing.T) {
	inWorld(t, runtest.Minimal+managed, func(t *testing.T, w *world) {
		w.MustRun(t)
		require.NotContains(t, w.Runtime.Calls(), "Replace front-proxy/main")
		w.Runtime.SetVolume("default/kcp/data-demo-etcd-alpha-0", "")
		w.Up.Options.AllowDataChange = []topology.ID{"etcd/alpha"}
		w.MustRun(t)
		require.Contains(t, w.Runtime.Calls(), "Replace front-proxy/main")
		w.Up.Options.AllowDataChange = nil
		w.MustRun(t)
		require.NotContains(t, w.Runtime.Calls(), "Replace front-proxy/main")
	})
}

// What has happened to volumes and clusters is noticed before the first write, while the setup runs and after down.
func TestDataIsWhatTheStorageSays(t *testing.T) {
	for name, tc := range storages {
		for when, down := range map[string]bool{"running": false, "after down": true} {
			if name == "the record is lost" && !down {
				continue // what runs says where the data is
			}
			t.Run(name+"/"+when, func(t *testing.T) {
				inWorld(t, runtest.Minimal+tc.setup, func(t *testing.T, w *world) {
					w.Runtime.SetCluster("us", "uid-us")
					w.MustRun(t)
					require.True(t, w.MustRun(t).Plan.Empty())
					if down {
						require.NoError(t, w.down(t, false))
					}
					tc.change(w)
					_, err := w.Run(t)
					requireRefused(t, err, tc.want)
					require.Contains(t, clierr.Hint(err), "--allow data-change")
					require.Empty(t, w.Runtime.Calls())

					for _, id := range tc.want {
						w.Up.Options.AllowDataChange = append(w.Up.Options.AllowDataChange, topology.ID(id))
					}
					w.MustRun(t)
					w.Up.Options.AllowDataChange = nil
					require.True(t, w.MustRun(t).Plan.Empty(), "it is the installation's from now on")
				})
			})
		}
	}
}

// A record of an earlier release says nothing of volumes and releases: the next run completes it.
func TestARecordOfAnEarlierReleaseIsCompleted(t *testing.T) {
	inWorld(t, runtest.Minimal+managed, func(t *testing.T, w *world) {
		w.MustRun(t)
		full := w.Runtime.Volumes()
		require.NotEmpty(t, full)
		w.Runtime.SetRecord(func(r *record.Record) *record.Record {
			out := r.Purge()
			for id, d := range out.Data {
				d.Volumes, d.Release = nil, ""
				out.Data[id] = d
			}
			return out
		})
		require.False(t, w.MustRun(t).Plan.Empty())
		rec, err := w.Runtime.Record(t.Context())
		require.NoError(t, err)
		var recorded []string
		for _, id := range []topology.ID{"etcd/alpha", "etcd/root"} {
			recorded = append(recorded, slices.Collect(maps.Values(rec.Data[id].Volumes))...)
			require.Equal(t, "v3.6.16", rec.Data[id].Release)
		}
		require.ElementsMatch(t, slices.Collect(maps.Values(full)), recorded)
		require.Equal(t, "v0.32.3", rec.Data["shard/alpha"].Release)
		require.True(t, w.MustRun(t).Plan.Empty())
	})
}

// A run that ends before the volumes exist does not make the next one fail.
func TestAnInterruptedFirstRunKnowsNoVolumes(t *testing.T) {
	inWorld(t, runtest.Minimal+managed, func(t *testing.T, w *world) {
		w.Runtime.On("Apply shard/alpha", func() error { return errors.New("refused") })
		_, err := w.Run(t)
		require.Error(t, err)
		w.Runtime.On("Apply shard/alpha", func() error { return nil })
		w.MustRun(t)
	})
}

// Data outlives Deployments, and the image of a Deployment does not always say its release.
func TestTheReleaseThatWroteTheData(t *testing.T) {
	digest := "spec: {version: %s, image: {digest: \"sha256:0123456789012345678901234567890123456789012345678901234567890123\"}}\n"
	for name, tc := range map[string]struct {
		from, to string
		down     bool
		want     string
	}{
		"back after down":            {"spec: {version: v0.32.3}\n", "spec: {version: v0.31.2}\n", true, "root-shard has data of kcp v0.32.3: v0.31.2 is older"},
		"a skipped release":          {"spec: {version: v0.30.0}\n", "spec: {version: v0.32.3}\n", true, "root-shard has data of kcp v0.30.0: from v0.30.0 to v0.32.3 skips"},
		"back with digests":          {changed(digest, "%s", "v0.32.3"), changed(digest, "%s", "v0.31.2", "0123", "3210"), false, "root-shard has data of kcp v0.32.3"},
		"back with digests and down": {changed(digest, "%s", "v0.32.3"), changed(digest, "%s", "v0.31.2"), true, "root-shard has data of kcp v0.32.3"},
		"etcd, after down":           {"spec: {etcd: {managed: {image: \"e:v3.6.16\"}}}\n", "spec: {etcd: {managed: {image: \"e:v3.5.21\"}}}\n", true, "etcd/root has data of v3.6.16: v3.5.21 is older"},
		"etcd, while it runs":        {"spec: {etcd: {managed: {image: \"e:v3.6.16\"}}}\n", "spec: {etcd: {managed: {image: \"e:v3.5.21\"}}}\n", false, "etcd/root runs v3.6.16: v3.5.21 is older"},
		"the next release":           {"spec: {version: v0.31.2}\n", "spec: {version: v0.32.3}\n", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Minimal+tc.from, func(t *testing.T, w *world) {
				w.MustRun(t)
				if tc.down {
					require.NoError(t, w.down(t, false))
				}
				next := newWorld(t, topologytest.Build(t, runtest.Minimal+tc.to), w.Runtime)
				next.Runtime.Use(next.Topology)
				_, err := next.Run(t)
				if tc.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, tc.want)
				require.Contains(t, clierr.Hint(err), "--allow release-change")
				require.Empty(t, next.Runtime.Calls())
				next.Up.Options.AllowReleaseChange = true
				next.MustRun(t)
			})
		})
	}
}
