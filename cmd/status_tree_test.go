package cmd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/status"
)

func TestStatusTree(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	yes, no, three, four, one := true, false, 3, 4, 1
	ok := ready.State{Ready: true, Replicas: 2, ReadyReplicas: 2, Version: "v0.32.3", Since: now.Add(-96 * time.Hour)}
	younger := ok
	younger.Since = now.Add(-time.Hour)
	lost := ready.State{
		Replicas: 3, ReadyReplicas: 2, Version: "v3.6.4", Reason: "Pod prod-etcd-root-1: CrashLoopBackOff: exit code 1",
		Next: "kcpctl etcd replace-member prod-etcd-root-1",
	}
	bad := ready.State{Replicas: 2, ReadyReplicas: 1, Version: "v0.32.3", Restarts: 3, Reason: "Pod x2x: OOMKilled (exit 137)"}
	st := &status.Status{
		Name: "prod", Version: "v0.32.3", URL: "https://kcp.example.com:6443", Drift: &one,
		Components: []status.Component{
			{ID: "etcd/root", State: lost},
			{ID: "root-shard", State: ok, Registered: &yes, NextExpiry: now.Add(100 * 24 * time.Hour)},
			{ID: "shard/alpha", State: younger, Registered: &yes},
			{ID: "shard/beta", State: ok, Registered: &yes},
			{ID: "shard/gamma", State: ok, Registered: &no},
			{ID: "front-proxy/main", State: bad, NextExpiry: now.Add(10 * 24 * time.Hour)},
		},
		Shards: []status.Shard{
			{Shard: kcp.Shard{Name: "root", Cordoned: true}, LogicalClusters: &one},
			{Shard: kcp.Shard{Name: "alpha"}, LogicalClusters: &three},
			{Shard: kcp.Shard{Name: "beta"}, LogicalClusters: &four},
			{Shard: kcp.Shard{Name: "old", BaseURL: "https://old.example.com"}},
		},
		NextExpiry: now.Add(10 * 24 * time.Hour), NextExpiryName: "prod-front-proxy-main-server",
		Rotations: []status.Rotation{{
			Rotations: pki.Rotations{pki.RotationOf(topology.ServerCA), pki.RotationOf(topology.ClientCA)}, Phase: pki.PhaseSwitch,
		}},
	}
	streams, out, _ := ui.Fake("", 0, 0)
	o := &statusOptions{env: &Env{Streams: streams, Now: func() time.Time { return now }}, setup: setupFlags{file: "prod.yaml"}}
	o.setNextCommands(st)
	streams.Out.Tree(o.tree(st))
	require.Equal(t, `kcp prod                  v0.32.3  NotReady       https://kcp.example.com:6443
|- etcd/root         2/3  v3.6.4   NotReady       Pod prod-etcd-root-1: CrashLoopBackOff: exit code 1 (repair it with: kcpctl etcd replace-member prod-etcd-root-1)
|- root-shard        2/2  v0.32.3  Ready     4d   cordoned, 1 logical cluster
|- shard/alpha       2/2  v0.32.3  Ready     60m  3 logical clusters
|- shard/beta        2/2  v0.32.3  Ready     4d   4 logical clusters
|- shard/gamma       2/2  v0.32.3  NotReady  4d   not registered with the root shard
|- front-proxy/main  1/2  v0.32.3  NotReady       Pod x2x: OOMKilled (exit 137), 3 restarts, a certificate expires in 10d
|- shard old (https://old.example.com) is registered but not in the setup
|- certificates: the first expires in 10d (prod-front-proxy-main-server, 2026-11-30)
|- rotation of the server CA, client CA: phase switch, the new one signs, the previous one is trusted; continue with: kcpctl certs rotate-ca server client -f prod.yaml --finish
|- drift: 1 object differs from the setup (see kcpctl diff -f prod.yaml)
`+"`"+`- next: kcpctl etcd replace-member prod-etcd-root-1
`, out.String())
}

func TestStatusTreeOfExpiredCertificates(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	expired := now.Add(-11 * time.Second)
	st := &status.Status{
		Name: "prod", Components: []status.Component{{ID: "root-shard", NextExpiry: expired}},
		NextExpiry: expired, NextExpiryName: "prod-root-server",
	}
	streams, out, _ := ui.Fake("", 0, 0)
	o := &statusOptions{env: &Env{Streams: streams, Now: func() time.Time { return now }}, setup: setupFlags{file: "prod.yaml"}}
	streams.Out.Tree(o.tree(st))
	require.Contains(t, out.String(), "a certificate expired 11s ago")
	require.Contains(t, out.String(), "certificates: the first expired 11s ago (prod-root-server, 2026-11-20)")
}

// Many shards in the same state have one line, unless each is asked for.
func TestStatusTreeOfManyShards(t *testing.T) {
	now, yes, no, clusters := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), true, false, 3
	st := &status.Status{Name: "prod"}
	for i := range 12 {
		name := fmt.Sprintf("s%d", i)
		c := status.Component{ID: topology.ID("shard/" + name), Registered: &yes, State: ready.State{
			Ready: true, Replicas: 2, ReadyReplicas: 2, Since: now.Add(-time.Duration(i) * time.Hour),
		}}
		if i == 4 {
			c.Registered = &no
		}
		st.Components = append(st.Components, c)
		st.Shards = append(st.Shards, status.Shard{Shard: kcp.Shard{Name: name}, LogicalClusters: &clusters})
	}
	text := func(all bool) string {
		streams, out, _ := ui.Fake("", 0, 0)
		o := &statusOptions{env: &Env{Streams: streams, Now: func() time.Time { return now }}, all: all}
		streams.Out.Tree(o.tree(st))
		return out.String()
	}
	require.Equal(t, `kcp prod                     NotReady
|- shard/{s0,s1,...}  2/2    Ready     11h  33 logical clusters (11 in the same state; --all lists them)
`+"`"+`- shard/s4           2/2    NotReady  4h   not registered with the root shard, 3 logical clusters
`, text(false))
	require.Equal(t, 13, strings.Count(text(true), "\n"))
}

func TestStatusTreeOfAgents(t *testing.T) {
	state := ready.State{Ready: true, Replicas: 1, ReadyReplicas: 1, Version: "v0.7.0"}
	share := func(n, of int) *status.Share { return &status.Share{Count: n, Of: of} }
	st := &status.Status{Name: "prod", Components: []status.Component{
		{ID: "agent/gadgets", State: state, Agent: &status.Agent{
			Leader: "prod-agent-gadgets-7d9_0b6d", Published: share(1, 2), Answering: share(3, 3),
			Problem: "PublishedResource gadgets: the agent has made no APIResourceSchema yet",
		}},
		{ID: "agent/unknown", State: state, Agent: &status.Agent{Unknown: "no front-proxy is ready that accepts client certificates"}},
		{ID: "agent/paused", State: ready.State{Ready: true, Version: "v0.7.0"}},
	}}
	for i := range 9 {
		st.Components = append(st.Components, status.Component{ID: topology.ID(fmt.Sprintf("agent/w%d", i)), State: state, Agent: &status.Agent{
			Leader: fmt.Sprintf("prod-agent-w%d-x2x_0b6d", i), Published: share(2, 2), Answering: share(3, 3),
		}})
	}
	streams, out, _ := ui.Fake("", 0, 0)
	o := &statusOptions{env: &Env{Streams: streams, Now: time.Now}}
	streams.Out.Tree(o.tree(st))
	require.Equal(t, `kcp prod                           NotReady
|- agent/gadgets      1/1  v0.7.0  NotReady    PublishedResource gadgets: the agent has made no APIResourceSchema yet, 1/2 resources published, 3/3 shards answer, prod-agent-gadgets-7d9 leads
|- agent/unknown      1/1  v0.7.0  Ready       not known whether it publishes: no front-proxy is ready that accepts client certificates
|- agent/paused       0/0  v0.7.0  Ready
`+"`"+`- agent/{w0,w1,...}  1/1  v0.7.0  Ready       2/2 resources published, 3/3 shards answer (9 in the same state; --all lists them)
`, out.String())
}

func TestStatusTreeOfSeveralClusters(t *testing.T) {
	ok := ready.State{Ready: true, Replicas: 1, ReadyReplicas: 1}
	nothing := 0
	st := &status.Status{
		Name: "prod", Drift: &nothing, DriftUnknown: 9,
		Clusters: []status.Cluster{{Name: "eu"}, {Name: "us", Unreachable: "the API server does not answer", Next: "check that it runs"}},
		Components: []status.Component{
			{ID: "root-shard", Cluster: "eu", State: ok}, {ID: "shard/alpha", Cluster: "eu", State: ok},
			{ID: "shard/beta", Cluster: "us", Unknown: true, State: ready.State{Replicas: 2, Reason: "cluster us cannot be reached"}},
		},
	}
	streams, out, _ := ui.Fake("", 0, 0)
	o := &statusOptions{env: &Env{Streams: streams, Now: time.Now}}
	streams.Out.Tree(o.tree(st))
	require.Equal(t, `kcp prod        2 clusters         NotReady
|- root-shard   eu          1/1    Ready
|- shard/alpha  eu          1/1    Ready
|- shard/beta   us          -/2    Unknown     cluster us cannot be reached
|- cluster us cannot be reached: the API server does not answer; check that it runs
`+"`"+`- drift: none; 9 objects are on clusters that cannot be reached
`, out.String())
}

func TestGroupName(t *testing.T) {
	for want, names := range map[string][]string{
		"shard/alpha":         {"alpha"},
		"shard/{s-1,s-2,...}": {"s-1", "s-2", "s-3", "s-4", "s-5", "s-6"},
	} {
		g := &group{Component: status.Component{ID: topology.ID("shard/" + names[0])}, names: names}
		require.Equal(t, want, g.name())
	}
}
