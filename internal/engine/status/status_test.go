package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/engine/status"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const text = `spec:
  version: v0.32.3
  external: {hostname: kcp.example.com}
  shards: [{name: alpha}]
  kubeconfigs: [{name: admin, validity: 24h}]
`

// inWorld runs a test in a bubble, on a setup that is up unless it is told otherwise.
func inWorld(t *testing.T, up bool, test func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		top := topologytest.Build(t, text)
		rt := fakeruntime.New(t, top)
		if up {
			u := &deploy.Up{Topology: top, Runtime: rt, Observe: func(run.Event) {}, Now: time.Now, Network: fakeruntime.Network{}}
			_, err := u.Run(t.Context())
			require.NoError(t, err)
		}
		test(t, top, rt)
	})
}

func collect(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) *status.Status {
	t.Helper()
	s, err := status.Collect(t.Context(), top, rt, time.Now(), status.Options{Drift: true})
	require.NoError(t, err)
	return s
}

// clusters answers with logical clusters.
func clusters(names ...string) fakekcp.Answer {
	all := []any{}
	for _, n := range names {
		all = append(all, map[string]any{"metadata": map[string]any{"name": "cluster", "annotations": map[string]any{"kcp.io/cluster": n}}})
	}
	return fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalClusterList", "metadata": map[string]any{}, "items": all}}
}

// registered is what a status says of the registration of shards.
func registered(s *status.Status) map[topology.ID]bool {
	out := map[topology.ID]bool{}
	for _, c := range s.Components {
		if c.Registered != nil {
			out[c.ID] = *c.Registered
		}
	}
	return out
}

func TestStatusOfARunningSetup(t *testing.T) {
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		rt.Kcp.Always("root-shard list logicalclusters", clusters("system:shard", "root", "2mc5xs36lrnz4t3j"))
		s := collect(t, top, rt)
		require.True(t, s.Ready)
		require.Empty(t, s.Problem)
		require.Equal(t, []string{"kcpctl.dev/v1alpha1", "Status", "demo", "v0.32.3", "memory", "https://kcp.example.com:6443"},
			[]string{s.APIVersion, s.Kind, s.Name, s.Version, s.Where, s.URL})
		var ids []topology.ID
		for _, c := range s.Components {
			ids = append(ids, c.ID)
			require.Equal(t, "default", c.Cluster)
			require.Equal(t, ready.State{Ready: true, Replicas: 1, ReadyReplicas: 1, Version: top.Component(c.ID).Version}, c.State)
			require.Equal(t, top.Component(c.ID).URL, c.URL)
			require.False(t, c.NextExpiry.IsZero())
		}
		require.Equal(t, []topology.ID{"etcd/root", "root-shard", "etcd/alpha", "shard/alpha", "front-proxy/main"}, ids)
		require.Equal(t, map[topology.ID]bool{"root-shard": true, "shard/alpha": true}, registered(s))
		require.Len(t, s.Shards, 2)
		require.Equal(t, []int{0, 2}, []int{*s.Shards[0].LogicalClusters, *s.Shards[1].LogicalClusters})
		require.Zero(t, *s.Drift)
		require.Equal(t, "demo-kubeconfig-admin", s.NextExpiryName)
		require.Equal(t, time.Now().Add(24*time.Hour).UTC(), s.NextExpiry.UTC())
	})
}

func TestStatusOfWhatIsNotWell(t *testing.T) {
	for name, tc := range map[string]struct {
		up         bool
		script     func(rt *fakeruntime.Runtime)
		problem    string
		registered map[topology.ID]bool
	}{
		"nothing is up": {},
		"root shard is not ready": {
			up:      true,
			script:  func(rt *fakeruntime.Runtime) { rt.States("root-shard", ready.State{Reason: "CrashLoopBackOff"}) },
			problem: "the root shard is not ready, so the registered shards are unknown",
		},
		"another component is not ready": {
			up:         true,
			script:     func(rt *fakeruntime.Runtime) { rt.States("front-proxy/main", ready.State{Reason: "0/1 ready"}) },
			registered: map[topology.ID]bool{"root-shard": true, "shard/alpha": true},
		},
		"a shard is not registered": {
			up: true,
			script: func(rt *fakeruntime.Runtime) {
				rt.Kcp.Always(fakekcp.ListShards, fakekcp.Shards(kcp.Shard{Name: "root"}))
			},
			registered: map[topology.ID]bool{"root-shard": true, "shard/alpha": false},
		},
		"the root shard refuses": {
			up: true,
			script: func(rt *fakeruntime.Runtime) {
				rt.Kcp.Always(fakekcp.ListShards, fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not you"))
			},
			problem: "the root shard does not answer: list shards: not you",
		},
		"the PKI is gone": {
			up:      true,
			script:  func(rt *fakeruntime.Runtime) { rt.OtherRun(&pki.State{}) },
			problem: "the PKI store is empty, so kcp cannot be asked",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, tc.up, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
				if tc.script != nil {
					tc.script(rt)
				}
				s := collect(t, top, rt)
				require.False(t, s.Ready)
				require.Equal(t, tc.problem, s.Problem)
				require.Len(t, s.Components, 5)
				if tc.registered == nil {
					tc.registered = map[topology.ID]bool{}
				}
				require.Equal(t, tc.registered, registered(s))
			})
		})
	}
}

func TestStatusDoesNotWaitForARootShardThatHangs(t *testing.T) {
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		rt.Kcp.Always(fakekcp.ListShards, fakekcp.Hang())
		start := time.Now()
		s := collect(t, top, rt)
		require.Contains(t, s.Problem, "the root shard does not answer: ")
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

func TestNothingIsKnownWithoutThePKI(t *testing.T) {
	boom := errors.New("boom")
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		rt.On("Load", func() error { return boom })
		_, err := status.Collect(t.Context(), top, rt, time.Now(), status.Options{Drift: true})
		require.ErrorIs(t, err, boom)
	})
}

// A component that cannot be asked, such as one on a cluster that is unreachable, is reported with the reason, and the
// others are shown.
func TestAComponentThatCannotBeAsked(t *testing.T) {
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		rt.On("State shard/alpha", func() error { return errors.New("boom") })
		s := collect(t, top, rt)
		require.False(t, s.Ready)
		require.Len(t, s.Components, 5)
		for _, c := range s.Components {
			if c.ID == "shard/alpha" {
				require.Equal(t, ready.State{Replicas: 1, Reason: "unknown: boom", Unexamined: true}, c.State)
				require.True(t, c.Unknown)
				continue
			}
			require.True(t, c.Ready, c.ID)
		}
		require.Equal(t, map[topology.ID]bool{"root-shard": true, "shard/alpha": true}, registered(s))
	})
}

func TestAnInterruptedLookIsNoStatus(t *testing.T) {
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		ctx, cancel := context.WithCancel(t.Context())
		rt.On("State shard/alpha", func() error { cancel(); return ctx.Err() })
		_, err := status.Collect(ctx, top, rt, time.Now(), status.Options{})
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestRotationsUnderWay(t *testing.T) {
	rotations := func(cas ...topology.CA) (all pki.Rotations) {
		for _, ca := range cas {
			all = append(all, pki.RotationOf(ca))
		}
		return all
	}
	key := pki.Rotations{pki.KeyRotation{}}
	for name, tc := range map[string]struct {
		distribute, then pki.Rotations // which begin, and which of them switch
		want             []status.Rotation
	}{
		"none": {},
		"one that is distributed": {
			distribute: rotations(topology.ServerCA),
			want:       []status.Rotation{{Rotations: rotations(topology.ServerCA), Of: []string{"server-ca"}, Phase: pki.PhaseDistribute}},
		},
		"those of a phase go on together": {
			distribute: rotations(topology.ServerCA, topology.ClientCA, topology.EtcdCA), then: rotations(topology.ServerCA, topology.ClientCA),
			want: []status.Rotation{
				{Rotations: rotations(topology.EtcdCA), Of: []string{"etcd-ca"}, Phase: pki.PhaseDistribute},
				{Rotations: rotations(topology.ServerCA, topology.ClientCA), Of: []string{"server-ca", "client-ca"}, Phase: pki.PhaseSwitch},
			},
		},
		"a key and an authority do not": {
			distribute: append(rotations(topology.ServerCA), key...),
			want: []status.Rotation{
				{Rotations: rotations(topology.ServerCA), Of: []string{"server-ca"}, Phase: pki.PhaseDistribute},
				{Rotations: key, Of: []string{"service-account-key"}, Phase: pki.PhaseDistribute},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
				state, err := tc.distribute.Advance(top, rt.PKI(), pki.PhaseNone, time.Now())
				require.NoError(t, err)
				state, err = tc.then.Advance(top, state, pki.PhaseDistribute, time.Now())
				require.NoError(t, err)
				rt.OtherRun(state)
				got := collect(t, top, rt).Rotations
				for i := range got {
					require.True(t, got[i].Incomplete, "the other run has not finished")
					got[i].Incomplete = false
					got[i].Done = nil
				}
				require.Equal(t, tc.want, got)
			})
		})
	}
}

func TestAFrontProxyThatDoesNotAnswer(t *testing.T) {
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		rt.Kcp.Always("front-proxy/main readyz", fakekcp.NotReady("shards"))
		s := collect(t, top, rt)
		require.False(t, s.Ready)
		require.Empty(t, s.Problem)
		require.Contains(t, s.Components[4].Unreachable, "shards")
		require.False(t, s.Components[4].Well())
	})
}

// A shard that does not tell is not counted, and nothing else suffers.
func TestAShardThatDoesNotTellWhatLivesThere(t *testing.T) {
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		rt.Kcp.Always("shard/alpha list logicalclusters", fakekcp.Hang())
		start := time.Now()
		s := collect(t, top, rt)
		require.True(t, s.Ready)
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Nil(t, s.Shards[0].LogicalClusters)
		require.NotNil(t, s.Shards[1].LogicalClusters)
	})
}

func TestDrift(t *testing.T) {
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		rt.Edit("Deployment/kcp/demo-root", func(o *unstructured.Unstructured) {
			require.NoError(t, unstructured.SetNestedField(o.Object, int64(7), "spec", "replicas"))
		})
		s := collect(t, top, rt)
		require.True(t, s.Ready)
		require.Equal(t, 1, *s.Drift)

		rt.On("Plan", func() error { return errors.New("boom") })
		s = collect(t, top, rt)
		require.Nil(t, s.Drift)
		require.Equal(t, "boom", s.DriftProblem)
		require.True(t, s.Ready)
	})
}

// Programs read this: what is nothing is left out, and no key ever gets in.
func TestJSON(t *testing.T) {
	inWorld(t, false, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		s := collect(t, top, rt)
		s.Components, s.Drift = s.Components[1:2], nil
		got, err := json.Marshal(s)
		require.NoError(t, err)
		require.JSONEq(t, `{
			"apiVersion": "kcpctl.dev/v1alpha1", "kind": "Status", "name": "demo", "version": "v0.32.3", "where": "memory",
			"url": "https://kcp.example.com:6443", "ready": false, "state": "NotInstalled",
			"components": [{
				"id": "root-shard", "cluster": "default", "url": "https://demo-root.kcp.svc.cluster.local:6443",
				"ready": false, "replicas": 1, "readyReplicas": 0, "reason": "is not there"
			}]
		}`, string(got))
	})
}

// What is on a cluster that cannot be reached is unknown, and the rest is shown.
func TestAClusterThatCannotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := topologytest.Build(t, `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu-prod}, {name: us, context: us-prod, region: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards: [{name: beta, cluster: us, url: "https://beta.example.com:6443"}]
`)
		rt := fakeruntime.New(t, top)
		u := &deploy.Up{Topology: top, Runtime: rt, Observe: func(run.Event) {}, Now: time.Now, Network: fakeruntime.Network{}}
		_, err := u.Run(t.Context())
		require.NoError(t, err)
		require.True(t, collect(t, top, rt).Ready)

		cut := clierr.New(clierr.Failed, "check the network", "no answer")
		rt.Lost = []plan.Unreachable{{Cluster: "us", Err: cut}}
		s := collect(t, top, rt)
		require.False(t, s.Ready)
		require.Equal(t, []status.Cluster{
			{Name: "eu", Context: "eu-prod", Namespace: "kcp"},
			{Name: "us", Context: "us-prod", Namespace: "kcp", Region: "us", Unreachable: "no answer", Next: "check the network"},
		}, s.Clusters)
		for _, c := range s.Components {
			require.Equal(t, c.Cluster == "us", c.Unknown, c.ID)
			require.Equal(t, c.Cluster != "us", c.Ready, c.ID)
		}
		require.Empty(t, s.DriftProblem)
		require.Zero(t, *s.Drift)
		require.NotZero(t, s.DriftUnknown)

		rt.Lost = append(rt.Lost, plan.Unreachable{Cluster: "eu", Err: cut})
		_, err = status.Collect(t.Context(), top, rt, time.Now(), status.Options{})
		require.ErrorIs(t, err, cut, "nothing can be shown")
	})
}

// The run that holds the lock is named. One that has not finished is remembered, and not as long as another one runs.
func TestRuns(t *testing.T) {
	inWorld(t, false, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		up := &deploy.Up{Topology: top, Runtime: rt, Observe: func(run.Event) {}, Now: time.Now, Network: fakeruntime.Network{}}
		rt.On("Apply root-shard", func() error { return errors.New("boom\nand a log") })
		_, err := up.Run(t.Context())
		require.Error(t, err)
		s := collect(t, top, rt)
		require.Nil(t, s.Run)
		require.Equal(t, record.RunFailed, s.LastRun.Result)
		require.Equal(t, "kcpctl test", s.LastRun.Command)
		require.Equal(t, "root-shard: boom", s.LastRun.Error)
		require.Equal(t, status.NotReady, s.State)

		rt.Current = &record.Run{Command: "kcpctl up", PID: 17}
		s = collect(t, top, rt)
		require.Equal(t, rt.Current, s.Run)
		require.Nil(t, s.LastRun)

		rt.Current = nil
		rt.On("Apply root-shard", nil)
		_, err = up.Run(t.Context())
		require.NoError(t, err)
		s = collect(t, top, rt)
		require.Nil(t, s.LastRun)
		require.Equal(t, status.Ready, s.State)
	})
}

// A run that is refused under the lock has changed nothing: what is remembered is the one before.
func TestRefusedRunsAreNotRemembered(t *testing.T) {
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		err := run.Locked(t.Context(), rt, func(context.Context) error { return errors.New("refused") }, nil)
		require.ErrorContains(t, err, "refused")
		require.Nil(t, collect(t, top, rt).LastRun)
	})
}

func TestStoppedAndNeverInstalled(t *testing.T) {
	inWorld(t, false, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		s := collect(t, top, rt)
		require.Equal(t, status.NotInstalled, s.State)
		require.False(t, s.Ready)
		require.Empty(t, s.Problem)
		require.NotEmpty(t, s.URL, "the setup file has it")
	})
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		down := &deploy.Down{Runtime: rt, Topology: top, Observe: func(run.Event) {}, Now: time.Now}
		require.NoError(t, down.Run(t.Context()))
		s := collect(t, top, rt)
		require.Equal(t, status.Stopped, s.State)
		require.False(t, s.Ready)
		require.Empty(t, s.Problem)
	})
}

// Before its ports are chosen, a setup on this machine has no URL: what listens there may be another program.
func TestNoURLBeforePortsAreAssigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := topologytest.BuildLocal(t, text)
		s := collect(t, top, fakeruntime.New(t, top))
		require.Equal(t, status.NotInstalled, s.State)
		require.Empty(t, s.URL)
		for _, c := range s.Components {
			require.Empty(t, c.URL)
		}
	})
}

func TestStatusComparesTheStoreWithTheRecord(t *testing.T) {
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		ours := rt.PKI()
		s := collect(t, top, rt)
		require.Empty(t, s.PKIProblem+s.LostKeys)

		rt.OtherRun(&pki.State{})
		s = collect(t, top, rt)
		require.Equal(t, "the PKI store (memory) is empty; installation "+ours.Installation.ID+" uses other authorities", s.PKIProblem)
		require.Contains(t, s.PKINext, "kcpctl certs import")
		require.Nil(t, s.Drift, "up refuses the store, so nothing would change")
		require.False(t, s.Ready)

		keyless := *ours
		keyless.CAs = maps.Clone(ours.CAs)
		client := keyless.CAs[topology.ClientCA]
		client.Key = nil
		keyless.CAs[topology.ClientCA] = client
		rt.OtherRun(&keyless)
		s = collect(t, top, rt)
		require.Empty(t, s.PKIProblem)
		require.Contains(t, s.LostKeys, "lacks the private key of the client CA")
		require.NotEmpty(t, s.LostKeysNext)
	})
}

// A rotation that was interrupted counts the components that have what is new, until all of them have it.
func TestInterruptedRotation(t *testing.T) {
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		rotate := &deploy.RotateCAs{Rotate: deploy.Rotate{
			Rotations: pki.Rotations{pki.RotationOf(topology.ServerCA)}, Topology: top, Store: rt.Store(), Now: time.Now,
			Up: &deploy.Up{Topology: top, Runtime: rt, Observe: func(run.Event) {}, Now: time.Now, Network: fakeruntime.Network{}},
		}}
		rotate.Begin = func(title string) func() {
			if strings.HasPrefix(title, "switch") {
				rt.On("Apply shard/alpha", func() error { return errors.New("boom") })
			}
			return func() {}
		}
		_, err := rotate.Run(t.Context())
		require.Error(t, err)
		s := collect(t, top, rt)
		require.Len(t, s.Rotations, 1)
		r := s.Rotations[0]
		require.Equal(t, pki.PhaseSwitch, r.Phase)
		require.True(t, r.Incomplete)
		require.Positive(t, r.Done.Count)
		require.Less(t, r.Done.Count, r.Done.Of)
		require.NotNil(t, s.LastRun)

		rotate.Begin = func(string) func() { return func() {} }
		rt.On("Apply shard/alpha", nil)
		_, err = rotate.Run(t.Context())
		require.NoError(t, err)
		s = collect(t, top, rt)
		require.False(t, s.Rotations[0].Incomplete)
		require.Nil(t, s.Rotations[0].Done)
	})
}
