package etcd_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeetcd"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// world is an etcd of three members.
func world(t *testing.T) (*fakeetcd.Etcd, *topology.Component, *pki.State) {
	t.Helper()
	top := topologytest.Build(t, "spec: {etcd: {managed: {replicas: 3}}}")
	issued := pkitest.Issue(t, top, time.Now())
	c := top.OfKind(topology.Etcd)[0]
	return fakeetcd.New(t, c, issued), c, issued
}

func client(t *testing.T, e *fakeetcd.Etcd, c *topology.Component, s *pki.State, hosts ...string) *etcd.Client {
	t.Helper()
	pair, err := pki.Mint(s, pki.MintSpec{CN: pki.CNSelf, CA: topology.EtcdCA, Hosts: hosts, Algorithm: "ECDSA-P256", Validity: time.Hour}, time.Now())
	require.NoError(t, err)
	out, err := etcd.New(etcd.Options{
		Host: c.Host(), CA: s.CAs[topology.EtcdCA].Trusted(), Pair: pair,
		Dial: func(ctx context.Context) (net.Conn, error) { return e.DialMember(ctx, c, c.Member(0)) },
	})
	require.NoError(t, err)
	t.Cleanup(out.Close)
	return out
}

// A prefix belongs to the first installation that claims it.
func TestOwners(t *testing.T) {
	e, c, s := world(t)
	api, ctx := client(t, e, c, s, c.ClientHost()), t.Context()
	owner, err := api.Owner(ctx, "/registry")
	require.NoError(t, err)
	require.Empty(t, owner)
	for range 2 {
		owner, err = api.Claim(ctx, "/registry", "demo-1")
		require.NoError(t, err)
		require.Equal(t, "demo-1", owner)
	}
	owner, err = api.Claim(ctx, "/registry", "demo-2")
	require.NoError(t, err)
	require.Equal(t, "demo-1", owner)
	require.NoError(t, api.TakeOver(ctx, "/registry", "demo-2"))
	owner, err = api.Owner(ctx, "/registry")
	require.NoError(t, err)
	require.Equal(t, "demo-2", owner)
	require.Equal(t, map[string]string{"/registry/kcpctl.dev/owner": "demo-2"}, e.Keys())
}

// All keys below a prefix are visited, whatever an answer holds.
func TestEach(t *testing.T) {
	e, c, s := world(t)
	e.SetKeys(map[string]string{
		"/registry/a": "1", "/registry/b": "22", "/registry/c": "333", "/registry/d": "", "/registry/e/f": "4444",
		"/registry0": "x", "/registr": "x", "/other/a": "x",
	})
	api := client(t, e, c, s, c.ClientHost())
	for _, prefix := range []string{"/registry", "/registry/"} {
		found := map[string]string{}
		require.NoError(t, api.Each(t.Context(), prefix, func(key string, value []byte) { found[key] = string(value) }))
		require.Equal(t, map[string]string{"a": "1", "b": "22", "c": "333", "d": "", "e/f": "4444"}, found)
	}
}

// Values that are too large to be read at once are read in several answers.
func TestEachOfLargeValues(t *testing.T) {
	e, c, s := world(t)
	value, keys := strings.Repeat("x", 33<<20), map[string]string{}
	for n := range 3 {
		keys[fmt.Sprintf("/registry/%d", n)] = value
	}
	e.SetKeys(keys)
	found := map[string]int{}
	visit := func(key string, value []byte) { found[key] += len(value) }
	require.NoError(t, client(t, e, c, s, c.ClientHost()).Each(t.Context(), "/registry", visit))
	require.Len(t, found, len(keys))
	for key, size := range found {
		require.Equal(t, len(value), size, key)
	}
}

func TestMembers(t *testing.T) {
	e, c, s := world(t)
	api, ctx := client(t, e, c, s, c.ClientHost()), t.Context()
	members, err := api.Members(ctx)
	require.NoError(t, err)
	require.Equal(t, []etcd.Member{
		{ID: 1, Name: "demo-etcd-root-0", PeerURLs: []string{c.PeerURL(0)}},
		{ID: 2, Name: "demo-etcd-root-1", PeerURLs: []string{c.PeerURL(1)}},
		{ID: 3, Name: "demo-etcd-root-2", PeerURLs: []string{c.PeerURL(2)}},
	}, members)
	require.NoError(t, api.Read(ctx))
	status, err := api.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, etcd.Status{Member: 1, Leader: 1, Version: "3.6.16", DBSize: 3 << 20}, status)

	require.ErrorContains(t, api.Add(ctx, c.PeerURL(2)), "Peer URLs already exists")
	require.NoError(t, api.Remove(ctx, 3))
	err = api.Remove(ctx, 3)
	require.ErrorContains(t, err, "etcdserver: member not found")
	require.True(t, etcd.IsNotFound(err))
	require.NoError(t, api.Add(ctx, c.PeerURL(2)))
	members, err = api.Members(ctx)
	require.NoError(t, err)
	require.Equal(t, etcd.Member{ID: 4, PeerURLs: []string{c.PeerURL(2)}}, members[2], "it has not started")
}

// Without a quorum a member reports its status, and nothing else.
func TestWithoutMajority(t *testing.T) {
	e, c, s := world(t)
	e.Stop(1)
	e.Stop(2)
	api, ctx := client(t, e, c, s, c.ClientHost()), t.Context()
	_, err := api.Members(ctx)
	require.ErrorContains(t, err, "list members: etcdserver: request timed out")
	require.False(t, etcd.IsNotFound(err))
	require.ErrorContains(t, api.Read(ctx), "etcdserver: request timed out")
	status, err := api.Status(ctx)
	require.NoError(t, err)
	require.Zero(t, status.Leader)
}

func TestAnEtcdTellsItsClientsByTheirHost(t *testing.T) {
	e, c, s := world(t)
	for name, hosts := range map[string][]string{"no host": nil, "another's": {"client.demo-etcd-alpha.kcp.svc.cluster.local"}} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, client(t, e, c, s, hosts...).Read(t.Context()), "bad certificate")
		})
	}
}

func TestClientGivesUp(t *testing.T) {
	e, c, s := world(t)
	api := client(t, e, c, s, c.ClientHost())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.DeadlineExceeded)
	require.ErrorIs(t, api.Read(ctx), context.DeadlineExceeded)
	e.Stop(0)
	require.EqualError(t, client(t, e, c, s).Read(t.Context()), "connect to demo-etcd-root-0: connection refused")
}

func TestAlarms(t *testing.T) {
	e, c, s := world(t)
	api, ctx := client(t, e, c, s, c.ClientHost()), t.Context()
	e.Raise(etcd.AlarmNoSpace, 0)
	e.Raise(etcd.AlarmCorrupt, 1)
	e.RaiseUnknown(etcd.AlarmCorrupt)
	want := []etcd.Alarm{{Type: "CORRUPT", Member: 2}, {Type: "CORRUPT"}, {Type: "NOSPACE", Member: 1}}
	status, err := api.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, want, status.Alarms)
	require.Empty(t, status.Errors)
	require.NoError(t, api.DisarmCorrupt(ctx, 2))
	status, err = api.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, want[1:], status.Alarms)
}
