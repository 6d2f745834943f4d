package pki

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// item is an item of a list.
func item(t *testing.T, l *List, name, role string) Item {
	t.Helper()
	i := slices.IndexFunc(l.Items, func(i Item) bool { return i.Name == name && i.Role == role })
	require.GreaterOrEqual(t, i, 0, name)
	return l.Items[i]
}

func listOf(t *testing.T, tp *topology.Topology, s *State) *List {
	t.Helper()
	l, err := ListOf(tp, s)
	require.NoError(t, err)
	return l
}

func TestList(t *testing.T) {
	tp, s := issued(t, full)
	l := listOf(t, tp, s)
	require.Len(t, l.Items, len(topology.CAs)+2+len(Table(tp)), "the authorities, two keys and the certificates")
	require.Empty(t, l.Rotations)
	for _, i := range l.Items {
		require.True(t, i.Issued, i.Name)
		require.False(t, i.IsDue(now()), i.Name)
	}
	beta := item(t, l, "demo-shard-beta-server", "")
	require.Equal(t, []any{"us", topology.ID("shard/beta"), "demo-server-ca", now().Add(8760 * time.Hour)},
		[]any{beta.Cluster, beta.Component, beta.Issuer, beta.NotAfter})
	require.Equal(t, now().Add((8760-720)*time.Hour), beta.Due, "30 days before")
	admin := item(t, l, "demo-kubeconfig-admin", "")
	require.Equal(t, admin.NotAfter.Add(-admin.life()/3), admin.Due, "a third of a short life")
	server := item(t, l, "server-ca", "")
	require.Equal(t, server.NotAfter.Add(-8760*time.Hour), server.Due, "it has to outlive what it signs")
	require.NotContains(t, server.UsedBy, topology.ID("etcd/root"))
	for _, key := range []string{"sa", "encryption"} {
		require.Equal(t, []topology.ID{"root-shard", "shard/alpha", "shard/beta"}, item(t, l, key, "").UsedBy)
	}
}

func TestListShowsRotations(t *testing.T) {
	tp, s := issued(t, secrets)
	first := rotate(t, tp, s)
	second := rotate(t, tp, first)
	for name, tc := range map[string]struct {
		state *State
		role  string
		phase Phase
	}{
		"distribute": {first, roleNext, PhaseDistribute},
		"switch":     {second, RolePrevious, PhaseSwitch},
	} {
		t.Run(name, func(t *testing.T) {
			l := listOf(t, tp, tc.state)
			require.Equal(t, map[string]Phase{
				"server-ca": tc.phase, "client-ca": tc.phase, "requestheader-ca": tc.phase, "etcd-ca": tc.phase, "service-account-key": tc.phase,
				"encryption-key": tc.phase,
			}, l.Rotations)
			require.True(t, item(t, l, "server-ca", tc.role).Issued)
		})
	}
	item(t, listOf(t, tp, first), "sa", roleNext)
	item(t, listOf(t, tp, second), "sa", roleEarlier)
}

func TestListOfWhatIsNotThere(t *testing.T) {
	tp, s := issued(t, secrets)
	delete(s.Leaves, find(t, tp, "demo-root-server").Key())
	keyless := s.CAs[topology.EtcdCA]
	keyless.Key = nil
	s.CAs[topology.EtcdCA] = keyless
	l := listOf(t, tp, s)
	lost := item(t, l, "demo-root-server", "")
	require.False(t, lost.Issued)
	require.True(t, lost.IsDue(now()) && lost.EndsWithin(0, now()))
	require.True(t, item(t, l, "etcd-ca", roleKeyless).Issued)
	for _, i := range listOf(t, tp, &State{}).Items {
		require.False(t, i.Issued, i.Name)
	}
}

func TestEndsWithin(t *testing.T) {
	tp, s := issued(t, secrets)
	s = rotate(t, tp, rotate(t, tp, s))
	l, year := listOf(t, tp, s), 8760*time.Hour
	for name, tc := range map[string]struct {
		item   Item
		within time.Duration
		want   bool
	}{
		"later":                 {item(t, l, "demo-root-server", ""), year, false},
		"sooner":                {item(t, l, "demo-root-server", ""), year + time.Second, true},
		"authority":             {item(t, l, "server-ca", ""), 11 * year, true},
		"previous authority":    {item(t, l, "server-ca", RolePrevious), 11 * year, false},
		"key, which has no age": {item(t, l, "sa", ""), 100 * year, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, tc.item.EndsWithin(tc.within, now())) })
	}
}
