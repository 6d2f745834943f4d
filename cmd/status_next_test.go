package cmd

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/status"
)

// statusAt is kcpctl status at a time.
func statusAt(now time.Time, local bool) *statusOptions {
	streams, _, _ := ui.Fake("", 0, 0)
	return &statusOptions{
		env:   &Env{Streams: streams, Now: func() time.Time { return now }},
		setup: setupFlags{file: "t.yaml", local: localFlags{enabled: local}},
	}
}

// Every reason that status knows has the command that repairs it, and this test an example of each.
func TestNextCommandOfEveryReason(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	one := 1
	interrupted := []status.Rotation{{
		Rotations: pki.Rotations{pki.RotationOf(topology.ServerCA)}, Phase: pki.PhaseSwitch, Incomplete: true,
	}}
	killed := []status.Component{{ID: "shard/alpha", State: ready.State{Stuck: true, Reason: "not running any more"}}}
	lost := []status.Component{{ID: "etcd/root", State: ready.State{Next: "kcpctl etcd replace-member demo-0"}}}
	examples := map[string]struct {
		status status.Status
		want   string
	}{
		"a run is in progress": {status.Status{Run: &record.Run{PID: 1}, Drift: &one}, "status --watch"},
		"a restore has not finished": {
			status.Status{Restoring: "demo-20261126T012016Z", State: status.Stopped}, "restore DIR/demo-20261126T012016Z"},
		"the PKI store does not belong to the installation": {
			status.Status{PKIProblem: "it is empty", Drift: &one}, "certs import DIR"},
		"never installed": {status.Status{State: status.NotInstalled, Drift: &one}, "up"},
		"stopped":         {status.Status{State: status.Stopped, Drift: &one}, "up"},
		"a rotation was interrupted": {
			status.Status{Rotations: interrupted, LastRun: &record.Run{Command: "kcpctl certs rotate-ca server"}},
			"certs rotate-ca server"},
		"the last run has not finished": {
			status.Status{LastRun: &record.Run{Command: "kcpctl remove-shard alpha"}}, "remove-shard alpha"},
		"a component has its own command": {status.Status{Components: lost, Drift: &one}, ""},
		"the key of an authority is lost": {status.Status{LostKeys: "client CA"}, "certs import DIR"},
		"a certificate has expired":       {status.Status{NextExpiry: now.Add(-time.Hour)}, "up"},
		"workspaces are being moved": {
			status.Status{Drift: &one, Moves: []kcp.Unfinished{{Begun: kcp.Begun{Cluster: "2mc5", Shard: "beta"}}}},
			"move 2mc5 --to beta"},
		"objects or processes are missing": {status.Status{Components: killed}, "up"},
		"a cluster cannot be reached": {
			status.Status{Clusters: []status.Cluster{{Name: "us", Unreachable: "no answer"}}}, "check --pre"},
		"something else": {status.Status{DriftProblem: "no answer"}, "check"},
	}
	o := statusAt(now, true)
	for _, step := range o.nextSteps() {
		tc, ok := examples[step.reason]
		require.True(t, ok, "no example of %q", step.reason)
		delete(examples, step.reason)
		o.setNextCommands(&tc.status)
		want := "kcpctl " + tc.want + " --local -f t.yaml"
		if tc.want == "" {
			want = lost[0].Next
		}
		require.Equal(t, want, tc.status.Next, step.reason)
		require.True(t, step.applies(&tc.status), step.reason)
	}
	require.Empty(t, examples, "reasons that status does not know")
}

// Whatever is combined, only a setup that is ready has no next command.
func TestNextCommandIsNeverMissing(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	change := []func(*status.Status){
		func(st *status.Status) { st.State = status.Stopped },
		func(st *status.Status) { st.State = status.NotInstalled },
		func(st *status.Status) { st.Run = &record.Run{} },
		func(st *status.Status) { st.LastRun = record.Unfinished(nil) },
		func(st *status.Status) { st.PKIProblem = "empty" },
		func(st *status.Status) { st.LostKeys = "client CA" },
		func(st *status.Status) { st.NextExpiry = now.Add(-time.Hour) },
		func(st *status.Status) { st.Problem = "the root shard does not answer" },
		func(st *status.Status) { st.DriftProblem = "no answer" },
		func(st *status.Status) { st.Components = []status.Component{{Unknown: true}, {Unreachable: "no"}} },
		func(st *status.Status) {
			st.Rotations = []status.Rotation{{Rotations: pki.Rotations{pki.KeyRotation{}}, Phase: pki.PhaseSwitch, Incomplete: true}}
		},
	}
	for set := range 1 << len(change) {
		st := &status.Status{}
		for i, do := range change {
			if set&(1<<i) != 0 {
				do(st)
			}
		}
		o := statusAt(now, set%2 == 0)
		o.setNextCommands(st)
		require.NotEmpty(t, st.Next, fmt.Sprintf("%b", set))
	}
	ready := &status.Status{Ready: true, State: status.Ready}
	statusAt(now, true).setNextCommands(ready)
	require.Empty(t, ready.Next)
	ready.LastRun = &record.Run{Command: "kcpctl up", Result: record.RunFailed}
	statusAt(now, true).setNextCommands(ready)
	require.Equal(t, "kcpctl up --local -f t.yaml", ready.Next, "it is ready, and not finished")
}

func TestStatusTreeFromOutside(t *testing.T) {
	now := time.Date(2026, 11, 20, 22, 45, 0, 0, time.UTC)
	since := now.Add(-4*time.Minute - 58*time.Second)
	none, seven := 0, 7
	up := ready.State{Ready: true, Replicas: 1, ReadyReplicas: 1}
	down := ready.State{Replicas: 1, Reason: "not running", Stuck: true}
	server := status.Rotation{Rotations: pki.Rotations{pki.RotationOf(topology.ServerCA)}, Phase: pki.PhaseSwitch}
	half := server
	half.Incomplete, half.Done = true, &status.Share{Count: 1, Of: 5}
	for name, tc := range map[string]struct {
		status status.Status
		want   string
	}{
		"stopped": {
			status.Status{Name: "demo", State: status.Stopped, URL: "https://127.0.0.1:6443", Drift: &seven,
				Components: []status.Component{{ID: "root-shard", State: down}}},
			`kcp demo              Stopped (data kept)    https://127.0.0.1:6443
|- root-shard  0/1    -
` + "`" + `- next: kcpctl up --local -f t.yaml
`,
		},
		"never installed": {
			status.Status{Name: "demo", State: status.NotInstalled, Drift: &seven,
				Components: []status.Component{{ID: "root-shard", State: down}}},
			`kcp demo              not installed
|- root-shard  0/1    -
` + "`" + `- next: kcpctl up --local -f t.yaml
`,
		},
		"a run in progress": {
			status.Status{Name: "demo", Drift: &none, Components: []status.Component{{ID: "root-shard", State: up}},
				Run: &record.Run{Command: "kcpctl up", User: "root", PID: 6461, Since: since}},
			`kcp demo              NotReady
|- root-shard  1/1    Ready
|- in progress: kcpctl up by root (pid 6461, since 22:40:02)
|- drift: none
` + "`" + `- next: kcpctl status --watch --local -f t.yaml
`,
		},
		"a run that failed, and one on a cluster that is silent": {
			status.Status{Name: "demo", Ready: true, State: status.Ready,
				LastRun: &record.Run{Command: "kcpctl up", Since: since, Ended: now.Add(-3 * time.Minute),
					Result: record.RunFailed, Error: "shard/alpha: not ready: 0/1 ready"},
				Run: &record.Run{Command: "kcpctl down", User: "ann", Host: "laptop", PID: 7, Since: since.Add(-24 * time.Hour),
					Renewed: since}},
			`kcp demo      Ready
|- in progress: kcpctl down by ann on laptop (pid 7, since 2026-11-19 22:40:02, which has not renewed its lock for 4m58s)
|- last run: up, failed 3m ago: shard/alpha: not ready: 0/1 ready
` + "`" + `- next: kcpctl status --watch --local -f t.yaml
`,
		},
		"an interrupted rotation": {
			status.Status{Name: "demo", Rotations: []status.Rotation{half},
				LastRun: &record.Run{Command: "kcpctl certs rotate-ca server", Since: since, Result: record.RunInterrupted}},
			`kcp demo      NotReady
|- last run: certs rotate-ca server, interrupted; it began 4m58s ago
|- rotation of the server CA: switch: 1 of 5 components; continue with: kcpctl certs rotate-ca server --local -f t.yaml
` + "`" + `- next: kcpctl certs rotate-ca server --local -f t.yaml
`,
		},
		"a rotation, and an up that was interrupted": {
			status.Status{Name: "demo", Rotations: []status.Rotation{half},
				LastRun: &record.Run{Command: "kcpctl up", Since: since, Ended: since, Result: record.RunInterrupted}},
			`kcp demo      NotReady
|- last run: up, interrupted 4m58s ago
|- rotation of the server CA: switch: 1 of 5 components; continue with: kcpctl up --local -f t.yaml
` + "`" + `- next: kcpctl up --local -f t.yaml
`,
		},
		"a complete rotation": {
			status.Status{Name: "demo", Ready: true, State: status.Ready, Rotations: []status.Rotation{server}},
			`kcp demo      Ready
` + "`" + `- rotation of the server CA: phase switch, the new one signs, the previous one is trusted; continue with: kcpctl certs rotate-ca server --local -f t.yaml --finish
`,
		},
		"an empty PKI store": {
			status.Status{Name: "demo", PKIProblem: "the PKI store (directory pki) is empty; installation demo-1 uses other authorities",
				PKINext: "restore it"},
			`kcp demo      NotReady
|- the PKI store (directory pki) is empty; installation demo-1 uses other authorities: restore it with kcpctl certs import
` + "`" + `- next: kcpctl certs import DIR --local -f t.yaml
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			streams, out, _ := ui.Fake("", 0, 0)
			o := statusAt(now, true)
			o.env.Streams = streams
			o.setNextCommands(&tc.status)
			streams.Out.Tree(o.tree(&tc.status))
			require.Equal(t, tc.want, out.String())
		})
	}
}

// Runs that remove or move something continue with the same command.
func TestCompletion(t *testing.T) {
	for command, want := range map[string]string{
		"kcpctl move root:a --to beta": "move root:a --to beta", "kcpctl rebalance": "rebalance",
		"kcpctl workloads rebalance": "up", "kcpctl remove-shard a": "remove-shard a",
		"kcpctl cluster remove c1": "cluster remove c1", "kcpctl cluster add c1": "up", "kcpctl restart shard/a": "up",
	} {
		require.Equal(t, want, completion(command))
	}
}
