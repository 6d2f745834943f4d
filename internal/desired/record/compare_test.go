package record_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func ensured(t *testing.T, s *pki.State) *pki.State {
	t.Helper()
	res, err := pki.Ensure(encrypting(t), s, pki.Options{Now: testutil.Start()})
	require.NoError(t, err)
	return res.State
}

// encrypting is a setup with all kinds of keys.
func encrypting(t *testing.T) *topology.Topology {
	return topologytest.Build(t, "spec: {encryption: {}}")
}

// phases are the states of a rotation, one after the other: before it, distributed, switched, and finished.
func phases(t *testing.T, r pki.Rotation) []*pki.State {
	t.Helper()
	all := []*pki.State{ensured(t, &pki.State{})}
	for _, from := range []pki.Phase{pki.PhaseNone, pki.PhaseDistribute, pki.PhaseSwitch} {
		next, err := r.Advance(encrypting(t), all[len(all)-1], from, testutil.Start())
		require.NoError(t, err)
		if from == pki.PhaseSwitch && r == (pki.KeyRotation{}) {
			next, err = pki.DropEarlierKeys(next)
			require.NoError(t, err)
		}
		all = append(all, ensured(t, next))
	}
	return all
}

// A PKI may be where the record has it, or one step of a rotation further, because a run can end between the two; never
// behind, and never two steps ahead.
func TestAuthoritiesOfARotation(t *testing.T) {
	for _, rotation := range pki.AllRotations() {
		all := phases(t, rotation)
		for i, applied := range all {
			known := (&record.Record{}).With(applied, nil)
			for j, stored := range all {
				err := known.CheckAuthorities(stored, "the store")
				if j == i || j == i+1 {
					require.NoError(t, err, "%s: %d to %d", rotation, i, j)
					continue
				}
				require.Error(t, err, "%s: %d to %d", rotation, i, j)
				require.Contains(t, err.Error(), "    "+rotation.String()+": ")
				require.Contains(t, clierr.Hint(err), "--replace-authorities")
			}
		}
	}
}

// The next authority of a rotation that is canceled may be missing, if it is named, and nothing else.
func TestANextAuthorityThatIsNoLongerTrusted(t *testing.T) {
	for _, rotation := range pki.AllRotations() {
		all := phases(t, rotation)
		known := (&record.Record{}).With(all[1], nil)
		next := all[1].Fingerprints()[rotation.Key()].Next
		require.NoError(t, known.CheckAuthorities(all[0], "the store", next), rotation)
		require.Error(t, known.CheckAuthorities(all[0], "the store", all[0].Fingerprints()[rotation.Key()].Current), rotation)
		require.Error(t, known.CheckAuthorities(all[3], "the store", next), rotation)
		known = known.With(all[0], nil)
		require.Contains(t, known.Retired[rotation.Key()], next)
		require.ErrorContains(t, known.CheckAuthorities(all[1], "the store"), "which is retired", rotation)
	}
}

func TestOtherAuthorities(t *testing.T) {
	ours, theirs := ensured(t, &pki.State{}), ensured(t, &pki.State{})
	known := (&record.Record{}).With(ours, nil)
	foreign := *theirs
	foreign.Installation = ours.Installation // made by an earlier kcpctl
	for name, tc := range map[string]struct {
		known *record.Record
		state *pki.State
		want  string
	}{
		"nothing is known":     {&record.Record{}, theirs, ""},
		"the same":             {known, ours, ""},
		"an empty store":       {known, &pki.State{}, "server CA: it is missing; the installation uses sha256:"},
		"another installation": {known, theirs, "the store does not hold the PKI of installation " + ours.Installation.ID + ", but that of installation " + theirs.Installation.ID},
		"other authorities":    {known, &foreign, "server CA: it is sha256:"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.known.CheckAuthorities(tc.state, "the store")
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.Equal(t, clierr.Failed, clierr.Code(err))
			for _, a := range ours.CAs {
				require.NotContains(t, err.Error(), string(a.Key))
			}
		})
	}
}

func TestData(t *testing.T) {
	at := func(cluster string, more ...string) record.Data {
		d := record.Data{Cluster: cluster, Namespace: "kcp", Etcd: "managed etcd/alpha"}
		for _, m := range more {
			d.Volume = m
		}
		return d
	}
	etcd := func(members int64) record.Data {
		return record.Data{Cluster: "eu", Namespace: "kcp", Members: members, Volume: "PersistentVolumeClaim data-demo-etcd-alpha-*"}
	}
	removed := func(d record.Data) record.Data { d.Removed, d.Emptied = true, true; return d }
	type data = map[topology.ID]record.Data
	for name, tc := range map[string]struct {
		was, now data
		only     []topology.ID
		allowed  []topology.ID
		want     []string // what the lines of the error say
	}{
		"nothing changes":      {was: data{"shard/alpha": at("eu"), "etcd/alpha": etcd(1)}, now: data{"shard/alpha": at("eu"), "etcd/alpha": etcd(1)}},
		"a shard more":         {was: data{}, now: data{"shard/alpha": at("eu")}},
		"a shard less":         {was: data{"shard/alpha": at("eu"), "etcd/alpha": etcd(1)}, now: data{}, want: []string{"shard/alpha holds workspaces (eu/kcp, managed etcd/alpha), and is no longer in the setup"}},
		"whatever is allowed":  {was: data{"shard/alpha": at("eu")}, now: data{}, allowed: []topology.ID{"shard/alpha"}, want: []string{"shard/alpha holds workspaces"}},
		"a renamed shard":      {was: data{"shard/alpha": at("eu")}, now: data{"shard/beta": at("eu")}, want: []string{"shard/alpha holds workspaces"}},
		"a shard that moves":   {was: data{"shard/alpha": at("eu")}, now: data{"shard/alpha": at("us")}, want: []string{"shard/alpha is on eu/kcp, and the setup has us/kcp"}},
		"and its data too":     {was: data{"shard/alpha": at("eu")}, now: data{"shard/alpha": at("us")}, allowed: []topology.ID{"shard/alpha"}},
		"a run about others":   {was: data{"shard/alpha": at("eu")}, now: data{}, only: []topology.ID{"shard/beta"}},
		"the root shard moves": {was: data{"root-shard": at("eu")}, now: data{"root-shard": at("us")}, allowed: []topology.ID{"root-shard"}, want: []string{"root-shard is on eu/kcp, and the setup places it on us/kcp"}},
		"another volume":       {was: data{"shard/alpha": at("eu", "PersistentVolumeClaim a")}, now: data{"shard/alpha": at("eu", "emptyDir")}, want: []string{"shard/alpha has its data on PersistentVolumeClaim a, and the setup has emptyDir"}},
		"more members":         {was: data{"etcd/alpha": etcd(1)}, now: data{"etcd/alpha": etcd(3)}, allowed: []topology.ID{"etcd/alpha"}, want: []string{"etcd/alpha has 1 members with data, and the setup has 3"}},
		"an etcd that its shard leaves": {was: data{"shard/alpha": at("eu"), "etcd/alpha": etcd(1)},
			now:  data{"shard/alpha": {Cluster: "eu", Namespace: "kcp", Etcd: "external http://etcd"}},
			want: []string{"shard/alpha has its data in managed etcd/alpha, and the setup has external http://etcd"}},
		"no cache server":                        {was: data{"cache-server": at("eu")}, now: data{}, want: []string{"cache-server holds data"}},
		"no cache server, on purpose":            {was: data{"cache-server": at("eu")}, now: data{}, allowed: []topology.ID{"cache-server"}},
		"a removed shard":                        {was: data{"shard/alpha": removed(at("eu"))}, now: data{}},
		"a removed shard comes back":             {was: data{"shard/alpha": removed(at("eu"))}, now: data{"shard/alpha": at("us")}},
		"on the volumes of another etcd":         {was: data{"etcd/alpha": removed(etcd(1))}, now: data{"etcd/alpha": etcd(3)}, want: []string{"etcd/alpha was removed, but its volumes still exist"}},
		"all problems together":                  {was: data{"shard/alpha": at("eu"), "shard/beta": at("eu")}, now: data{"shard/beta": at("us")}, want: []string{"shard/alpha holds", "shard/beta is on"}},
		"a cluster that is called otherwise now": {was: data{"shard/alpha": at("eu")}, now: data{"shard/alpha": at("eu")}},
	} {
		t.Run(name, func(t *testing.T) {
			known := &record.Record{Installation: "demo-1", Data: tc.was}
			in := func(all []topology.ID, none bool) func(topology.ID) bool {
				return func(id topology.ID) bool {
					for _, a := range all {
						if a == id {
							return true
						}
					}
					return len(all) == 0 && none
				}
			}
			err := known.CheckData(tc.now, in(tc.only, true), in(tc.allowed, false))
			if len(tc.want) == 0 {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			lines := strings.Split(err.Error(), "\n")
			require.Len(t, lines, len(tc.want))
			for i, want := range tc.want {
				require.Contains(t, lines[i], want)
			}
			require.NotEmpty(t, clierr.Hint(err))
		})
	}
}

// The first run that has applied the authorities sets the time. It is forgotten when they change.
func TestWhenAuthoritiesWereApplied(t *testing.T) {
	for _, rotation := range pki.AllRotations() {
		var r *record.Record
		for i, state := range phases(t, rotation) {
			require.True(t, r.With(state, nil).AuthoritiesApplied.IsZero(), "%s: phase %d", rotation, i)
			r = r.With(state, nil)
			r.Applied(testutil.Start())
			r = r.With(state, nil)
			r.Applied(testutil.Start().Add(time.Hour))
			require.Equal(t, testutil.Start(), r.AuthoritiesApplied, "%s: phase %d", rotation, i)
		}
	}
}

func TestRecordSurvivesEncoding(t *testing.T) {
	r := (&record.Record{}).With(ensured(t, &pki.State{}), map[topology.ID]record.Data{"shard/alpha": {Cluster: "eu", ClusterUID: "u", Members: 3}})
	r.Applied(testutil.Start().Local().Add(time.Millisecond))
	raw, err := r.Encode("v0.9.0", nil)
	require.NoError(t, err)
	got, err := record.Decode(raw)
	require.NoError(t, err)
	require.True(t, r.Equal(got))
	require.False(t, got.Empty())
	none, err := record.Decode(nil)
	require.NoError(t, err)
	require.True(t, none.Empty())
	_, err = record.Decode([]byte("{"))
	require.ErrorContains(t, err, "read the record of the installation")
}

func TestRemoveAndPurge(t *testing.T) {
	r := &record.Record{Installation: "demo-1", Data: map[topology.ID]record.Data{"shard/alpha": {Cluster: "eu"}, "shard/beta": {}}}
	out := r.Remove(true, "shard/alpha")
	require.True(t, out.Data["shard/alpha"].Removed)
	require.False(t, r.Data["shard/alpha"].Removed, "the first stays as it is")
	out.Drop(map[topology.ID]record.Data{})
	require.Contains(t, out.Data, topology.ID("shard/alpha"), "its data is still there")
	require.NotContains(t, out.Data, topology.ID("shard/beta"))
	require.NotContains(t, out.Purge("shard/alpha").Data, topology.ID("shard/alpha"))
}

// A thousand shards fit into a Secret beside the history.
func TestALongRecordIsCompressed(t *testing.T) {
	r := (&record.Record{}).With(ensured(t, &pki.State{}), nil)
	for i := range 1000 {
		name := fmt.Sprintf("s%d", i)
		r.Data[topology.IDOf(topology.Shard, name)] = record.Data{Cluster: "eu", Namespace: "kcp", ClusterUID: "0d0b0c9a-0000", Etcd: "managed etcd/" + name}
		r.Data[topology.IDOf(topology.Etcd, name)] = record.Data{Cluster: "eu", Namespace: "kcp", Members: 3, Volume: "PersistentVolumeClaim data-demo-etcd-" + name + "-*"}
	}
	raw, err := r.Encode("v0.9.0", nil)
	require.NoError(t, err)
	require.Less(t, len(raw), 32<<10)
	got, err := record.Decode(raw)
	require.NoError(t, err)
	require.True(t, r.Equal(got))
	_, err = record.Decode(raw[:len(raw)/2])
	require.ErrorContains(t, err, "read the record of the installation")
}

// What was replaced does not come back by itself: not as the authority that signs, and not as the next one, which by
// itself would be one step of a rotation ahead.
func TestRetiredAuthorities(t *testing.T) {
	for _, rotation := range pki.AllRotations() {
		all := phases(t, rotation)
		before, distributed, finished := all[0], all[1], all[3]
		replaced := (&record.Record{}).With(distributed, nil).With(before, nil)
		require.NoError(t, replaced.CheckAuthorities(before, "the store"), rotation)
		err := replaced.CheckAuthorities(distributed, "the store")
		require.ErrorContains(t, err, "which is retired", rotation)
		require.Contains(t, clierr.Hint(err), "--replace-authorities")

		rotated := (&record.Record{}).With(before, nil).With(distributed, nil).With(all[2], nil).With(finished, nil)
		require.Len(t, rotated.Retired[rotation.Key()], 1, rotation)
		back := rotated.With(before, nil)
		require.NoError(t, back.CheckAuthorities(before, "the store"), "on purpose")
		require.Error(t, back.CheckAuthorities(finished, "the store"), rotation)
	}
}

// A file that shares little with the installation is probably another setup of the same name.
func TestAnotherSetupOfTheSameName(t *testing.T) {
	data := func(ids ...topology.ID) map[topology.ID]record.Data {
		out := map[topology.ID]record.Data{}
		for _, id := range ids {
			out[id] = record.Data{Cluster: "eu", Namespace: "kcp"}
		}
		return out
	}
	all := func(topology.ID) bool { return true }
	none := func(topology.ID) bool { return false }
	for name, tc := range map[string]struct {
		was, now map[topology.ID]record.Data
		another  bool
	}{
		"more than half":   {data("root-shard", "cache-server", "shard/alpha", "shard/beta"), data("root-shard"), true},
		"half":             {data("root-shard", "cache-server", "shard/alpha", "shard/beta"), data("root-shard", "shard/alpha"), false},
		"the only shard":   {data("root-shard", "shard/alpha"), data("root-shard"), false},
		"a file with more": {data("root-shard", "shard/alpha", "shard/beta"), data("root-shard", "cache-server", "shard/alpha"), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&record.Record{Installation: "demo-1", Data: tc.was}).CheckData(tc.now, all, none)
			require.Error(t, err)
			first := clierr.Problems(err)[0]
			require.Equal(t, tc.another, strings.HasPrefix(first.Hint, "this file describes another setup of the same name: use "), first)
			require.Equal(t, tc.another, strings.HasSuffix(first.Message, " data of installation demo-1 are not in the setup file"))
			require.NotContains(t, clierr.Hint(err), "kcpctl down --purge", "the context may be the wrong one")
		})
	}
}

// One flag or command is the next step of all components that it concerns.
func TestNextStepsOfSeveralComponents(t *testing.T) {
	at := record.Data{Cluster: "eu", Namespace: "kcp"}
	known := &record.Record{Installation: "demo-1", Data: map[topology.ID]record.Data{
		"cache-server": at, "root-shard": at, "shard/a": at, "shard/b": at, "shard/c": at, "shard/d": at,
	}}
	err := known.CheckData(map[topology.ID]record.Data{"root-shard": at, "shard/a": at, "shard/b": at},
		func(topology.ID) bool { return true }, func(topology.ID) bool { return false })
	hint := clierr.Hint(err)
	require.Contains(t, hint, "shard/c, shard/d: add it to spec.shards again")
	require.Contains(t, hint, "kcpctl remove-shard c d, with --drain")
	require.Contains(t, hint, "pass --allow data-change=cache-server")
	require.Equal(t, 1, strings.Count(hint, "spec.shards"))
}
