package record_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func etcdOf(cluster, uid string, members int64, volumes ...string) record.Data {
	d := record.Data{Cluster: cluster, Namespace: "kcp", ClusterUID: uid, Members: members, Volume: "PersistentVolumeClaim data-demo-etcd-alpha-*"}
	for i := 0; i+1 < len(volumes); i += 2 {
		if d.Volumes == nil {
			d.Volumes = map[string]string{}
		}
		d.Volumes["data-demo-etcd-alpha-"+volumes[i]] = volumes[i+1]
	}
	return d
}

// Data is what the storage says: a volume is its ID, and a place is the UID of its cluster.
func TestCheckStorage(t *testing.T) {
	dir := func(id string) record.Data {
		return record.Data{Etcd: "embedded etcd", Volumes: map[string]string{"demo-shard-alpha/data/etcd": id}}
	}
	for name, tc := range map[string]struct {
		was, now   record.Data
		want, hint string
	}{
		"as it was":              {was: etcdOf("eu", "1", 1, "0", "a"), now: etcdOf("eu", "1", 1, "0", "a")},
		"of an earlier release":  {was: etcdOf("eu", "", 1), now: etcdOf("eu", "1", 1, "0", "a")},
		"a user who sees no UID": {was: etcdOf("eu", "1", 1, "0", "a"), now: etcdOf("eu", "", 1, "0", "a")},
		"gone":                   {was: etcdOf("eu", "1", 1, "0", "a"), now: etcdOf("eu", "1", 1), want: "etcd/alpha has its data on PersistentVolumeClaim data-demo-etcd-alpha-0 (a), which does not exist", hint: "restore the volume"},
		"another one":            {was: etcdOf("eu", "1", 1, "0", "a"), now: etcdOf("eu", "1", 1, "0", "b"), want: "which is another one now (b)", hint: "--allow data-change=etcd/alpha"},
		"one of three":           {was: etcdOf("eu", "1", 3, "0", "a", "1", "b", "2", "c"), now: etcdOf("eu", "1", 3, "0", "a", "1", "b"), want: "alpha-2 (c), which does not exist", hint: "kcpctl etcd replace-member demo-etcd-alpha-2, or"},
		"two of three":           {was: etcdOf("eu", "1", 3, "0", "a", "1", "b", "2", "c"), now: etcdOf("eu", "1", 3, "0", "a"), want: "and on PersistentVolumeClaim", hint: "restore the volume"},
		"the cluster is another": {was: etcdOf("eu", "1", 1, "0", "a"), now: etcdOf("eu", "2", 1), want: "eu is now the cluster with UID 2", hint: "--allow data-change=etcd/alpha"},
		"being deleted": {
			was: etcdOf("eu", "1", 1, "0", "a"), want: "data-demo-etcd-alpha-0 (a), which is being deleted",
			now: etcdOf("eu", "1", 1).On(record.Storage{
				Volumes: map[string]string{"data-demo-etcd-alpha-0": "a"}, Deleting: []string{"data-demo-etcd-alpha-0"},
			}),
		},
		"a directory":              {was: dir("x"), now: dir("x")},
		"a directory without mark": {was: dir(""), now: dir("x")},
		"another directory":        {was: dir("x"), now: dir(""), want: "directory demo-shard-alpha/data/etcd (x), which is another one now (without an ID)"},
		"a directory that is gone": {was: dir("x"), now: record.Data{Etcd: "embedded etcd"}, want: "which does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &record.Record{Installation: "demo-1", Data: map[topology.ID]record.Data{"etcd/alpha": tc.was}}
			want := map[topology.ID]record.Data{"etcd/alpha": tc.now}
			err := r.CheckData(want, all, none)
			require.NoError(t, r.CheckData(want, none, none), "it is not part of the run")
			require.NoError(t, r.CheckData(want, all, all), "on purpose")
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.Contains(t, clierr.Hint(err), tc.hint)
		})
	}
}

func all(topology.ID) bool { return true }

func none(topology.ID) bool { return false }

// Volumes of a component that the record does not know have data of another time.
func TestFoundVolumes(t *testing.T) {
	want := map[topology.ID]record.Data{"etcd/alpha": etcdOf("eu", "1", 1, "0", "a"), "etcd/beta": etcdOf("eu", "1", 1)}
	for _, r := range []*record.Record{{}, {Installation: "demo-1"}} {
		err := r.CheckData(want, all, none)
		require.ErrorContains(t, err, "etcd/alpha is not in the record of the installation, and finds data on eu/kcp (PersistentVolumeClaim data-demo-etcd-alpha-0 (a))")
		require.NotContains(t, err.Error(), "beta")
		require.Contains(t, clierr.Hint(err), "--allow data-change=etcd/alpha")
		require.NoError(t, r.CheckData(want, all, all))
	}
	removed := &record.Record{Installation: "demo-1", Data: map[topology.ID]record.Data{"etcd/alpha": {Cluster: "eu", Namespace: "kcp", Members: 1, Removed: true}}}
	require.NoError(t, removed.CheckData(want, all, none), "remove-shard has kept them")
}

func TestUses(t *testing.T) {
	for claim, want := range map[string]bool{
		"data-demo-etcd-alpha-0": true, "data-demo-etcd-alpha-2": true, "data-demo-etcd-alpha-3": false, "data-demo-etcd-alpha-x": false, "data-demo-etcd-alpha": false,
	} {
		require.Equal(t, want, etcdOf("eu", "", 3).Uses(claim), claim)
	}
	require.True(t, record.Data{Volume: "PersistentVolumeClaim mine"}.Uses("mine"))
	require.False(t, record.Data{Volume: "emptyDir"}.Uses(""))
}

// A run that learns nothing about the storage keeps what is known, and one that moves the data does not.
func TestWithKeepsWhatIsKnown(t *testing.T) {
	state := ensured(t, &pki.State{})
	was := etcdOf("eu", "1", 1, "0", "a")
	was.Release = "v3.6.16"
	r := (&record.Record{}).With(state, map[topology.ID]record.Data{"etcd/alpha": was})
	require.Equal(t, was, r.With(state, map[topology.ID]record.Data{"etcd/alpha": etcdOf("eu", "", 1)}).Data["etcd/alpha"])
	moved := r.With(state, map[topology.ID]record.Data{"etcd/alpha": etcdOf("eu", "2", 1)}).Data["etcd/alpha"]
	require.Equal(t, "2", moved.ClusterUID)
	require.Empty(t, moved.Volumes)
	r.SetVolumes(map[topology.ID]record.Storage{"etcd/alpha": {Volumes: map[string]string{"x": "y"}}, "etcd/other": {}})
	require.Equal(t, map[string]string{"x": "y"}, r.Data["etcd/alpha"].Volumes)
	require.Equal(t, "1", r.Data["etcd/alpha"].ClusterUID)
	require.NotContains(t, r.Data, topology.ID("etcd/other"))
}
