package shards_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/shards"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

const threeReplicas = runtest.Minimal + "spec: {defaults: {replicas: 3}, shards: [{name: alpha}, {name: beta}]}\n"

// draining is a removal that drains alpha, which has logical clusters.
func (w *world) draining(t *testing.T, all ...fakekcp.Cluster) (*shards.RemoveShards, *fakekcp.Moves) {
	t.Helper()
	r := w.removal(t)
	r.Drain = true
	w.Runtime.Kcp.Never(listClusters)
	w.Runtime.Kcp.Never(listMigration)
	for _, op := range []string{"create", "get", "delete"} {
		w.Runtime.Kcp.Never(op + " apibindings")
		w.Runtime.Kcp.Never(op + " logicalclustermigrations")
	}
	return r, w.Runtime.Kcp.ServeMoves(all...)
}

func onShard(shard string, names ...string) []fakekcp.Cluster {
	var out []fakekcp.Cluster
	for _, name := range names {
		out = append(out, fakekcp.Cluster{Path: "root:" + name, Shard: shard, Data: map[string]string{"first": "yes"}})
	}
	return out
}

// livesOn requires that a logical cluster is in use on one shard only.
func livesOn(t *testing.T, m *fakekcp.Moves, name, shard string) fakekcp.Cluster {
	t.Helper()
	c, on := m.On(name)
	require.Equal(t, []string{shard}, on, name)
	require.Equal(t, "Ready", c.Phase, name)
	notes := maps.Clone(c.Annotations)
	delete(notes, "kcpctl.dev/left")
	require.Empty(t, notes, name)
	require.Empty(t, m.Migrations())
	return c
}

func TestRemoveShardDrains(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r, m := w.draining(t, onShard("alpha", "a", "b")...)
		require.NoError(t, r.Run(t.Context()))
		livesOn(t, m, "a-id", "beta")
		require.Equal(t, map[string]string{"first": "yes"}, livesOn(t, m, "b-id", "beta").Data)
		drain := w.Of("drain")
		require.Equal(t, "done 2 logical clusters moved", drain[len(drain)-1])
		require.Contains(t, drain, "running root:a to shard beta, root:b to shard beta: Preparing")
		require.Contains(t, w.Runtime.Calls(), "Delete shard/alpha")
	})
}

// Whatever process of a shard serves a client, and whenever a process ends: what it acknowledges is there in the end.
func TestDrainLosesNoAcknowledgedWrite(t *testing.T) {
	phases := []string{"Preparing", "Migrating", "OriginCleanup", "DestinationFinalize"}
	for _, restarted := range []string{"", "alpha", "beta"} {
		for _, at := range phases {
			t.Run(fmt.Sprintf("%s restarts in %s", restarted, at), func(t *testing.T) {
				inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
					r, m := w.draining(t, onShard("alpha", "a")...)
					acknowledged, writes, done := map[string]string{}, 0, false
					m.During = func(phase, cluster string) {
						if phase == at && !done {
							m.Restart(restarted)
							done = phase != "Migrating" || writes > 8 // before and after the copy
						}
						for _, shard := range []string{"alpha", "beta"} {
							for _, leader := range []bool{true, false} {
								writes++
								key := fmt.Sprintf("%s-%d", phase, writes)
								if m.Write(shard, cluster, key, "value", leader) {
									acknowledged[key] = "value"
								}
							}
						}
					}
					require.NoError(t, r.Run(t.Context()))
					c := livesOn(t, m, "a-id", "beta")
					for key := range acknowledged {
						require.Contains(t, c.Data, key)
					}
					require.Greater(t, writes, 8)
				})
			})
		}
	}
}

// What is killed at any request continues: the logical cluster ends open and complete on the other shard.
func TestDrainContinues(t *testing.T) {
	killed := func() error { return errRemovalKilled }
	inWorld(t, threeReplicas, func(t *testing.T, w *world) {
		r, _ := w.draining(t)
		beta := w.Topology.Component("shard/beta")
		const drained = "the drain has ended"
		w.Runtime.Kcp.Always(deleteShard, fakekcp.Refuse(http.StatusInternalServerError, "InternalError", drained))
		for n, ended := 0, false; !ended; n++ {
			m := w.Runtime.Kcp.ServeMoves(onShard("alpha", "a")...)
			w.Runtime.On("Scale shard/alpha 3", killed)
			w.Runtime.On("Scale shard/beta 3", killed)
			ctx, cancel := context.WithCancel(t.Context())
			requests := 0
			m.Before = func() bool {
				if requests++; requests > n {
					cancel()
				}
				return requests <= n
			}
			first, again := *r, *r
			err := first.Run(ctx)
			ended = strings.Contains(err.Error(), drained)
			cancel()
			m.Resume()
			w.Runtime.On("Scale shard/alpha 3", nil)
			w.Runtime.On("Scale shard/beta 3", nil)
			require.ErrorContains(t, again.Run(t.Context()), drained, "request %d", n)
			require.Equal(t, map[string]string{"first": "yes"}, livesOn(t, m, "a-id", "beta").Data)
			s, err := w.Runtime.State(t.Context(), beta)
			require.NoError(t, err)
			require.EqualValues(t, 3, s.Replicas, "request %d", n)
			require.Less(t, n, 200)
			if ended {
				require.Greater(t, n, 20)
			}
		}
	})
}

// Workspaces are closed while they move, so status shows a drain that has not ended.
func TestDrainIsAnUnfinishedRunFromItsFirstMove(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r, m := w.draining(t, onShard("alpha", "a")...)
		ctx, cancel := context.WithCancel(t.Context())
		m.During = func(string, string) { m.Before = func() bool { return false }; cancel() }
		require.Error(t, r.Run(ctx))
		require.NotEmpty(t, m.Migrations())
		_, unfinished, err := w.Runtime.Runs(t.Context())
		require.NoError(t, err)
		require.NotNil(t, unfinished)
		m.Resume()
		m.Do(func() { m.During = nil })
		require.NoError(t, r.Run(t.Context()))
		_, unfinished, err = w.Runtime.Runs(t.Context())
		require.NoError(t, err)
		require.Nil(t, unfinished)
	})
}

// Only one replica of each end of a move runs. In the end all replicas of the shards that stay run.
func TestDrainStopsReplicas(t *testing.T) {
	inWorld(t, threeReplicas, func(t *testing.T, w *world) {
		r, m := w.draining(t, onShard("alpha", "a", "b")...)
		m.During = func(string, string) {
			require.Subset(t, w.Runtime.Calls(), []string{"Scale shard/alpha 1", "Scale shard/beta 1"})
		}
		require.NoError(t, r.Run(t.Context()))
		require.Equal(t, []string{"Lock", "Begin", "Scale shard/alpha 1", "Scale shard/beta 1", "Scale shard/beta 3"}, w.Runtime.Calls()[:5])
		require.NotContains(t, w.Runtime.Calls(), "Scale root-shard 1", "nothing moves there")
	})
}

// What a watch shows may be older than what the run has scaled.
func TestDrainWaitsUntilReplicasAreSeenToStop(t *testing.T) {
	inWorld(t, threeReplicas, func(t *testing.T, w *world) {
		r, m := w.draining(t, onShard("alpha", "a")...)
		three := ready.State{Ready: true, Replicas: 3, ReadyReplicas: 3}
		late := ready.State{Replicas: 3, Reason: ready.RolloutNotStarted}
		w.Runtime.States("shard/beta", three, late, late, runtest.IsReady())
		w.OnEach = func(e run.Event) {
			if e.Name == "drain" && e.Status == run.Done {
				w.Runtime.States("shard/beta", late)
			}
		}
		require.NoError(t, r.Run(t.Context()))
		livesOn(t, m, "a-id", "beta")
		require.Contains(t, w.Runtime.Calls(), "Scale shard/beta 3")
	})
}

func TestDrainRefusesReplicasThatComeBack(t *testing.T) {
	inWorld(t, threeReplicas, func(t *testing.T, w *world) {
		r, m := w.draining(t, onShard("alpha", "a", "b")...)
		r.Concurrency = 1
		m.During = func(phase, _ string) {
			if phase == "OriginCleanup" {
				s := runtest.IsReady()
				s.Replicas = 2
				w.Runtime.States("shard/alpha", s)
			}
		}
		runtest.RequireError(t, r.Run(t.Context()), clierr.Failed, "move root:b to shard beta: shard/alpha has 2 replicas again, "+
			"and kcp moves workspaces safely only from and to a single one")
		livesOn(t, m, "a-id", "beta")
		livesOn(t, m, "b-id", "alpha")
	})
}

func TestDrainKeepsWorkspacesWhereTheyMayBe(t *testing.T) {
	const three = runtest.Minimal + "spec: {shards: [{name: alpha, labels: {region: eu}}, {name: beta, labels: {region: us}}, " +
		"{name: gamma, labels: {region: eu}}]}\n"
	eu := map[string]string{"region": "eu"}
	inWorld(t, three, func(t *testing.T, w *world) {
		r, m := w.draining(t,
			fakekcp.Cluster{Path: "root:a", Shard: "alpha", Selector: eu},
			fakekcp.Cluster{Path: "root:a:b", Shard: "alpha", Selector: eu},
			fakekcp.Cluster{Path: "root:r", Shard: "alpha", Selector: map[string]string{"kind": "root"}},
		)
		w.Runtime.Kcp.Label("root", "kind", "root")
		require.NoError(t, r.Run(t.Context()))
		livesOn(t, m, "a-id", "gamma")
		livesOn(t, m, "a-b-id", "gamma")
		livesOn(t, m, "r-id", "root")
	})
	inWorld(t, three, func(t *testing.T, w *world) {
		r, m := w.draining(t,
			fakekcp.Cluster{Path: "root:a", Shard: "alpha", Selector: map[string]string{"region": "ap"}},
			fakekcp.Cluster{Path: "root:b", Shard: "alpha"},
			fakekcp.Cluster{Path: "root:c", Shard: "alpha", Annotations: map[string]string{"core.kcp.io/inactive": "true"}},
			fakekcp.Cluster{Path: "root:d", Shard: "alpha", Annotations: map[string]string{"internal.kcp.io/migrating": "root:mine"}},
			fakekcp.Cluster{Path: "root:orphan", Shard: "alpha"},
		)
		err := r.Run(t.Context())
		runtest.RequireError(t, err, clierr.Failed, "shard/alpha is not removed: it keeps 4 workspaces\n"+
			"    root:a: its location selector \"region=ap\" matches no other shard\n"+
			"    root:c: it is inactive, so kcp cannot copy it (annotation core.kcp.io/inactive of its LogicalCluster)\n"+
			"    root:d: LogicalClusterMigration root:mine moves it\n"+
			"    root:orphan: it has no Workspace object, so it is not known which shards it may be on")
		require.Contains(t, clierr.Hint(err), "kcpctl add-shard NAME --label KEY=VALUE")
		_, on := m.On("b-id")
		require.NotEqual(t, []string{"alpha"}, on)
		require.Empty(t, w.Runtime.Kcp.Requests(deleteShard))
	})
}

// If nothing can move, nothing is changed.
func TestDrainRefusesBeforeTheFirstWrite(t *testing.T) {
	inWorld(t, threeReplicas, func(t *testing.T, w *world) {
		r, _ := w.draining(t, fakekcp.Cluster{Path: "root:a", Shard: "alpha", Selector: map[string]string{"region": "eu"}})
		runtest.RequireError(t, r.Run(t.Context()), clierr.Failed, "shard/alpha is not removed: it keeps 1 workspace\n"+
			"    root:a: its location selector \"region=eu\" matches no other shard")
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
		require.Empty(t, w.Runtime.Kcp.Requests("create apibindings"))
		require.Contains(t, w.Of("cordon"), "done undone")
	})
}

// A logical cluster that an earlier run has left closed on another shard is opened, although nothing is left to move.
func TestDrainOpensWhatIsClosed(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r, m := w.draining(t, fakekcp.Cluster{
			Path: "root:a", Shard: "beta", Phase: "Unavailable", Annotations: map[string]string{"kcpctl.dev/moving": "beta"},
		})
		m.Bind()
		require.NoError(t, r.Run(t.Context()))
		livesOn(t, m, "a-id", "beta")
	})
}

// What is drained goes to shards that stay.
func TestShardsAreNotDrainedIntoEachOther(t *testing.T) {
	const three = runtest.Minimal + "spec: {shards: [{name: alpha}, {name: beta}, {name: gamma}]}\n"
	inWorld(t, three, func(t *testing.T, w *world) {
		r, m := w.draining(t, append(onShard("alpha", "a", "b"), onShard("beta", "c")...)...)
		r.Names = []string{"alpha", "beta"}
		require.NoError(t, r.Run(t.Context()))
		for _, name := range []string{"a-id", "b-id", "c-id"} {
			livesOn(t, m, name, "gamma")
		}
	})
}

// endIn ends a run as soon as a migration is in a phase, and lets the next one continue.
func endIn(t *testing.T, begin func(context.Context) error, m *fakekcp.Moves, phase string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	m.During = func(now, _ string) {
		if now == phase {
			m.Before = func() bool { return false }
			cancel()
		}
	}
	require.Error(t, begin(ctx))
	m.Resume()
	m.Do(func() { m.During = nil })
}

// What a run has read before kcp copies it is known to the next one, also if the shard with the copy was restarted.
func TestDrainComparesWhatAnEarlierRunHasRead(t *testing.T) {
	for _, change := range []string{"", "lost"} {
		inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
			r, m := w.draining(t, onShard("alpha", "a")...)
			first, again, accepted := *r, *r, *r
			endIn(t, first.Run, m, "OriginCleanup")
			m.Do(func() { m.Restart("beta") })
			if change == "" {
				require.NoError(t, again.Run(t.Context()))
				livesOn(t, m, "a-id", "beta")
				return
			}
			m.Do(func() { m.During = func(string, string) { m.Lose("beta", "a-id", "first") } })
			err := again.Run(t.Context())
			runtest.RequireError(t, err, clierr.Failed, "move root:a to shard beta: 1 of 1 entries are not the same as before it was copied: "+
				"an unknown one, so it stays closed on shard beta")
			require.Contains(t, clierr.Hint(err), "kcpctl kubeconfig --user NAME --group system:masters --target shard/beta "+
				"--workspace a-id --port-forward -- kubectl get configmaps -A); then run the command again with --allow unverified-copy=root:a,")
			c, on := m.On("a-id")
			require.Equal(t, []string{"beta"}, on)
			require.Equal(t, "Unavailable", c.Phase)
			require.Empty(t, w.Runtime.Kcp.Requests(deleteShard))

			accepted.AllowUnverifiedCopy = []string{"root:a"}
			require.NoError(t, accepted.Run(t.Context()))
			livesOn(t, m, "a-id", "beta")
		})
	}
}

// A migration that kcp ends as failed has copied nothing.
func TestDrainOpensTheOriginalOfAFailedMigration(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r, m := w.draining(t, onShard("alpha", "a")...)
		m.During = func(phase, _ string) {
			if phase == "Migrating" { // the shard is restarted, and a user begins another migration
				m.Restart("alpha")
				m.Annotate("alpha", "a-id", "internal.kcp.io/migrating", "root:mine")
			}
		}
		runtest.RequireError(t, r.Run(t.Context()), clierr.Failed, "move root:a to shard beta: migration failed: "+
			"LogicalClusterAlreadyMigrating: by root:mine; it is open again on shard alpha")
		c, on := m.On("a-id")
		require.Equal(t, []string{"alpha"}, on)
		require.Equal(t, "Ready", c.Phase)
		require.Empty(t, m.Migrations())
	})
}

// The migration of a logical cluster that is closed on both shards was deleted. kcp would take either for the
// original. What stays on its shard is opened.
func TestDrainDoesNotChooseBetweenTwoCopies(t *testing.T) {
	closed := map[string]string{"kcpctl.dev/moving": "beta"}
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		data := map[string]string{"first": "yes", "second": "yes"}
		stays := map[string]string{"tier": "none"}
		r, m := w.draining(t,
			fakekcp.Cluster{Path: "root:a", Shard: "alpha", Phase: "Unavailable", Annotations: closed, Data: data},
			fakekcp.Cluster{Path: "root:a", Shard: "beta", Phase: "Unavailable", Annotations: closed},
			fakekcp.Cluster{Path: "root:b", Shard: "alpha", Phase: "Unavailable", Annotations: closed, Selector: stays},
		)
		m.Bind()
		here, local := *r, *r.Topology
		local.Home.Local, here.Topology = true, &local
		require.Contains(t, clierr.Hint(here.Run(t.Context())), "--workspace a-id -- kubectl", "this machine reaches all shards")
		err := r.Run(t.Context())
		runtest.RequireError(t, err, clierr.Failed, "root:a is on shard alpha and on shard beta, and no LogicalClusterMigration "+
			"says which one is complete: it stays closed")
		require.Contains(t, clierr.Hint(err), "--target shard/NAME --workspace a-id --port-forward -- kubectl")
		require.Empty(t, m.Migrations())
		c, on := m.On("a-id")
		require.Equal(t, []string{"alpha", "beta"}, on)
		require.Equal(t, "Unavailable", c.Phase)
		livesOn(t, m, "b-id", "alpha")
	})
}

// Shards that stay have a closed copy and an original that serves, of a drain of another shard.
func TestDrainDoesNotOpenASecondCopy(t *testing.T) {
	inWorld(t, runtest.Minimal+"spec: {shards: [{name: alpha}, {name: beta}, {name: gamma}]}\n", func(t *testing.T, w *world) {
		r, m := w.draining(t,
			fakekcp.Cluster{Path: "root:a", Shard: "gamma", Phase: "Ready"},
			fakekcp.Cluster{Path: "root:a", Shard: "beta", Phase: "Unavailable", Annotations: map[string]string{"kcpctl.dev/moving": "beta"}},
		)
		m.Bind()
		runtest.RequireError(t, r.Run(t.Context()), clierr.Failed, "root:a is on shard beta and on shard gamma, and no LogicalClusterMigration "+
			"says which one is complete: it stays closed")
		_, on := m.On("a-id")
		require.Equal(t, []string{"beta", "gamma"}, on)
		require.Empty(t, w.Runtime.Kcp.Requests(deleteShard))
	})
}

// A removal without a drain neither finishes nor forgets the moves of a drain: kcp may still need the shard for them.
func TestRemoveShardDoesNotForgetMoves(t *testing.T) {
	for _, phase := range []string{"Migrating", "OriginCleanup", "DestinationFinalize"} {
		inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
			r, m := w.draining(t, onShard("alpha", "a")...)
			first, without, again := *r, *r, *r
			endIn(t, first.Run, m, phase)
			without.Drain = false
			_, err := without.Check(t.Context(), true)
			for _, err := range []error{err, without.Run(t.Context())} {
				runtest.RequireError(t, err, clierr.Failed, "shard/alpha is not removed: an earlier run has not finished its moves, "+
					"and 1 logical cluster is being moved")
				require.Contains(t, clierr.Hint(err), "add --drain")
			}
			require.Empty(t, w.Runtime.Kcp.Requests(deleteShard))
			_, unfinished, err := w.Runtime.Runs(t.Context())
			require.NoError(t, err)
			require.NotNil(t, unfinished)

			require.NoError(t, again.Run(t.Context()))
			livesOn(t, m, "a-id", "beta")
		})
	}
}
