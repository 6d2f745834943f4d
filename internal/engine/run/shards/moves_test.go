package shards_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/engine/run/shards"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const threeShards = runtest.Minimal + "spec: {shards: [{name: alpha}, {name: beta, labels: {region: eu}}, {name: gamma}]}\n"

// moving is a run that moves workspaces of a world that is up.
func (w *world) moving(t *testing.T, choice shards.Choice, all ...fakekcp.Cluster) (*shards.Moves, *fakekcp.Moves) {
	t.Helper()
	_, m := w.draining(t, all...)
	w.Runtime.Command = "kcpctl move root:a --to beta"
	return &shards.Moves{
		Topology: w.Topology, Runtime: w.Runtime, Choice: choice, Observe: w.Observe(t), Now: time.Now, Timeout: time.Hour,
	}, m
}

func toBeta(workspaces ...string) shards.Selected {
	return shards.Selected{Workspaces: workspaces, To: "beta"}
}

func TestMoves(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		all := append(onShard("alpha", "a", "a:b", "a:b:c", "ab"), onShard("gamma", "a:d")...)
		r, m := w.moving(t, shards.Selected{Workspaces: []string{"root:a", "a-b-id"}, To: "beta", Recursive: true}, all...)
		moves, err := r.Check(t.Context())
		require.NoError(t, err)
		require.Equal(t, []shards.WorkspaceMove{
			{"root:a", "a-id", "alpha", "beta"}, {"root:a:b", "a-b-id", "alpha", "beta"},
			{"root:a:b:c", "a-b-c-id", "alpha", "beta"}, {"root:a:d", "a-d-id", "gamma", "beta"},
		}, moves)
		r.Confirmed = moves
		require.NoError(t, r.Run(t.Context()))
		for _, name := range []string{"a-id", "a-b-id", "a-b-c-id", "a-d-id"} {
			require.Equal(t, map[string]string{"first": "yes"}, livesOn(t, m, name, "beta").Data)
		}
		livesOn(t, m, "ab-id", "alpha")
		require.Equal(t, "running from shard gamma to shard beta: beginning", w.Of("root:a:d")[0])
		require.Contains(t, w.Of("root:a"), "done from shard alpha to shard beta: moved")
		require.Contains(t, w.Of("migration"), "done 4 workspaces moved")
		_, unfinished, err := w.Runtime.Runs(t.Context())
		require.NoError(t, err)
		require.Nil(t, unfinished)

		w.Runtime.Forget()
		again, err := r.Check(t.Context())
		require.NoError(t, err)
		require.Empty(t, again, "it need not move again")
		r.Confirmed = nil
		require.NoError(t, r.Run(t.Context()))
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
	})
}

// Never more than the limit are closed, and as many as that at some time.
func TestMovesSeveralAtATime(t *testing.T) {
	for _, limit := range []int{1, 3} {
		inWorld(t, threeShards, func(t *testing.T, w *world) {
			names := []string{"a", "b", "c", "d", "e", "f", "g"}
			r, m := w.moving(t, shards.Balanced{Within: 10}, onShard("alpha", names...)...)
			r.Concurrency = limit
			closed, most := map[string]bool{}, 0
			m.During = func(phase, cluster string) {
				closed[cluster] = phase != "DestinationFinalize"
				now := 0
				for _, is := range closed {
					if is {
						now++
					}
				}
				most = max(most, now)
			}
			require.NoError(t, r.Run(t.Context()))
			require.Equal(t, limit, most)
		})
	}
}

// Everything that prevents the moves is reported at once, and nothing is written.
func TestMovesRefuseBeforeTheFirstWrite(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		note := func(path, key, value string) fakekcp.Cluster {
			return fakekcp.Cluster{Path: path, Shard: "alpha", Annotations: map[string]string{key: value}}
		}
		r, _ := w.moving(t, toBeta("root:sel", "root:new", "root:inactive", "root:mine", "root:orphan", "root:none", "root:ok"),
			fakekcp.Cluster{Path: "root:sel", Shard: "alpha", Selector: map[string]string{"region": "us"}},
			fakekcp.Cluster{Path: "root:new", Shard: "alpha", Phase: "Initializing"},
			note("root:inactive", "core.kcp.io/inactive", "true"), note("root:mine", "internal.kcp.io/migrating", "root:mine"),
			fakekcp.Cluster{Path: "root:orphan", Shard: "alpha"}, fakekcp.Cluster{Path: "root:ok", Shard: "alpha"},
		)
		const cannot = " cannot move to shard beta: "
		want := strings.Join([]string{
			`workspace "root:none" does not exist`,
			"root:sel" + cannot + `its location selector "region=us" does not match this shard`,
			"root:new" + cannot + "it is Initializing",
			"root:inactive" + cannot + "it is inactive, so kcp cannot copy it (annotation core.kcp.io/inactive of its LogicalCluster)",
			"root:mine" + cannot + "LogicalClusterMigration root:mine moves it",
			"root:orphan" + cannot + "it has no Workspace object, so it is not known which shards it may be on",
		}, "\n")
		_, err := r.Check(t.Context())
		require.EqualError(t, err, want)
		require.Contains(t, clierr.Hint(err), "set a selector that matches shard alpha and shard beta, or none")
		require.EqualError(t, r.Run(t.Context()), want)
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
		require.Empty(t, w.Runtime.Kcp.Requests("create apibindings"))
	})
}

func TestMovesRefuseADestination(t *testing.T) {
	for want, change := range map[string]func(w *world, r *shards.Moves){
		`shard "mars" is not in the setup file`: func(_ *world, r *shards.Moves) {
			r.Choice = shards.Selected{Workspaces: []string{"root:a"}, To: "mars"}
		},
		`shard "beta" is not registered in kcp`:              func(w *world, _ *shards.Moves) { w.Runtime.Kcp.Unregister("beta") },
		`shard "beta" is cordoned: it accepts no workspaces`: func(w *world, _ *shards.Moves) { w.Runtime.Kcp.Register(kcp.Shard{Name: "beta", Cordoned: true}) },
		"the feature gate LogicalClusterMigration, which kcp needs to move logical clusters, is off on shard/beta": func(w *world, _ *shards.Moves) {
			w.Runtime.Kcp.Always("shard/beta "+dump, fakekcp.Refuse(404, "NotFound", "no handler"))
		},
		"the feature gate LogicalClusterMigration, which kcp needs to move logical clusters, is off on shard/alpha": func(w *world, _ *shards.Moves) {
			w.Runtime.Kcp.Always("shard/alpha "+dump, fakekcp.Refuse(404, "NotFound", "no handler"))
		},
		"cannot list the workspaces on shard/gamma: list logical clusters: it sleeps": func(w *world, _ *shards.Moves) {
			w.Runtime.Kcp.Always("shard/gamma "+listClusters, fakekcp.Refuse(500, "InternalError", "it sleeps"))
		},
	} {
		inWorld(t, threeShards, func(t *testing.T, w *world) {
			r, _ := w.moving(t, toBeta("root:a"), onShard("alpha", "a")...)
			change(w, r)
			require.EqualError(t, r.Run(t.Context()), want)
			require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
		})
	}
}

func TestMovesOnlyWhatWasConfirmed(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		r, m := w.moving(t, shards.Selected{Workspaces: []string{"root:a"}, To: "beta", Recursive: true}, onShard("alpha", "a", "a:b")...)
		r.Confirmed = []shards.WorkspaceMove{{"root:a", "a-id", "alpha", "beta"}}
		runtest.RequireError(t, r.Run(t.Context()), clierr.Conflict, "other workspaces would move now than the ones that were confirmed, "+
			"because workspaces or shards have changed; nothing was changed")
		livesOn(t, m, "a-id", "alpha")
	})
}

// What a user creates while an earlier move is completed was not confirmed.
func TestMovesOnlyWhatWasConfirmedBefore(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		r, m := w.moving(t, shards.Selected{Workspaces: []string{"root:a"}, To: "beta", Recursive: true}, onShard("alpha", "a")...)
		endIn(t, r.Run, m, "Migrating")
		m.Do(func() {
			m.During = func(now, _ string) {
				if now == "OriginCleanup" {
					m.Add(fakekcp.Cluster{Path: "root:a:b", Shard: "alpha"})
				}
			}
		})
		r.Confirmed = []shards.WorkspaceMove{}
		require.NoError(t, r.Run(t.Context()))
		livesOn(t, m, "a-id", "beta")
		livesOn(t, m, "a-b-id", "alpha")
	})
}

// A workspace whose earlier move had to end on another shard than confirmed has not moved to the chosen one.
func TestMovesFailIfAConfirmedOneIsNotMade(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		first, m := w.moving(t, toBeta("root:a"), onShard("alpha", "a", "b")...)
		r := *first
		endIn(t, first.Run, m, "Preparing")
		w.Runtime.Kcp.Register(kcp.Shard{Name: "beta", Cordoned: true})
		r.Choice = shards.Selected{Workspaces: []string{"root:a", "root:b"}, To: "root"}
		moves, err := r.Check(t.Context())
		require.NoError(t, err)
		require.Equal(t, []shards.WorkspaceMove{{"root:a", "a-id", "beta", "root"}, {"root:b", "b-id", "alpha", "root"}}, moves)
		r.Confirmed = moves
		runtest.RequireError(t, r.Run(t.Context()), clierr.Conflict, "1 workspace would move otherwise than confirmed, because workspaces or "+
			"shards have changed, and did not move\n    root:a to shard root")
		livesOn(t, m, "b-id", "root")
		livesOn(t, m, "a-id", "gamma")
		_, unfinished, err := w.Runtime.Runs(t.Context())
		require.NoError(t, err)
		require.NotNil(t, unfinished)
	})
}

// A failure lets the running moves end, begins no others, and says where the workspaces are. The same command
// continues.
func TestMovesStopAtTheFirstDifference(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		r, m := w.moving(t, toBeta("root:a", "root:b", "root:c", "root:d"), onShard("alpha", "a", "b", "c", "d")...)
		r.Concurrency = 2
		m.During = func(phase, cluster string) {
			if phase == "OriginCleanup" && cluster == "a-id" {
				m.Lose("beta", "a-id", "first")
			}
		}
		err := r.Run(t.Context())
		runtest.RequireError(t, err, clierr.Failed, "move root:a to shard beta: 1 of 1 entries are not the same as before it was copied: first, "+
			"so it stays closed on shard beta\n    root:a is on shard beta, closed\n    root:c is on shard alpha\n    root:d is on shard alpha")
		require.Contains(t, clierr.Hint(err), "--allow unverified-copy=root:a")
		require.Equal(t, []string{"notStarted is on shard alpha"}, w.Of("root:d")[:1])
		_, on := m.On("b-id")
		require.Equal(t, []string{"beta"}, on)
		_, unfinished, runErr := w.Runtime.Runs(t.Context())
		require.NoError(t, runErr)
		require.Equal(t, record.RunFailed, unfinished.Result)

		m.Do(func() { m.During = nil })
		r.AllowUnverifiedCopy = []string{"root:a"}
		require.NoError(t, r.Run(t.Context()))
		for _, name := range []string{"a-id", "b-id", "c-id", "d-id"} {
			livesOn(t, m, name, "beta")
		}
	})
}

// A run that is killed at any request of several concurrent moves continues.
func TestMovesContinue(t *testing.T) {
	inWorld(t, threeReplicas, func(t *testing.T, w *world) {
		r, _ := w.moving(t, toBeta("root:a", "root:b", "root:c"))
		for n, ended := 0, false; !ended; n += 3 {
			m := w.Runtime.Kcp.ServeMoves(onShard("alpha", "a", "b", "c")...)
			ctx, cancel := context.WithCancel(t.Context())
			requests := 0
			m.Before = func() bool {
				if requests++; requests > n {
					cancel()
				}
				return requests <= n
			}
			first, again := *r, *r
			ended = first.Run(ctx) == nil
			cancel()
			m.Resume()
			require.NoError(t, again.Run(t.Context()), "request %d", n)
			for _, name := range []string{"a-id", "b-id", "c-id"} {
				require.Equal(t, map[string]string{"first": "yes"}, livesOn(t, m, name, "beta").Data, "request %d", n)
			}
			for _, shard := range []string{"shard/alpha", "shard/beta"} {
				s, err := w.Runtime.State(t.Context(), w.Topology.Component("shard/alpha"))
				require.NoError(t, err)
				require.EqualValues(t, 3, s.Replicas, "%s, request %d", shard, n)
			}
			_, unfinished, err := w.Runtime.Runs(t.Context())
			require.NoError(t, err)
			require.Nil(t, unfinished, "request %d", n)
			require.Less(t, n, 600)
			if ended {
				require.Greater(t, n, 60)
			}
		}
	})
}

// What an interrupted move has begun goes where it was to go, whatever the next run moves.
func TestMovesCompleteEarlierOnes(t *testing.T) {
	for _, phase := range []string{"Preparing", "Migrating", "OriginCleanup", "DestinationFinalize"} {
		inWorld(t, threeShards, func(t *testing.T, w *world) {
			r, m := w.moving(t, toBeta("root:a"), onShard("alpha", "a", "b")...)
			endIn(t, r.Run, m, phase)
			r.Choice = shards.Selected{Workspaces: []string{"root:b"}, To: "gamma"}
			require.NoError(t, r.Run(t.Context()))
			livesOn(t, m, "a-id", "beta")
			livesOn(t, m, "b-id", "gamma")
		})
	}
}

// A shard that is no longer in the setup file can have what an interrupted run has closed, or the original of a copy.
func TestMovesDoNotContinueWithoutAShard(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		moves, m := w.moving(t, shards.Balanced{},
			fakekcp.Cluster{Path: "root:a", Shard: "alpha", Phase: "Ready"},
			fakekcp.Cluster{Path: "root:a", Shard: "beta", Phase: "Unavailable", Annotations: map[string]string{"kcpctl.dev/moving": "beta"}},
		)
		m.Bind()
		removal := w.removal(t)
		removal.Drain, removal.Names = true, []string{"gamma"}
		without := topologytest.Build(t, strings.Replace(threeShards, "{name: alpha}, ", "", 1))
		moves.Topology, removal.Topology = without, without
		for _, again := range []func(context.Context) error{moves.Run, removal.Run} {
			err := again(t.Context())
			runtest.RequireError(t, err, clierr.Failed, "an earlier run has not finished its moves, and shard/alpha is registered "+
				"and may have workspaces that are closed, but is not in the setup file")
			require.Contains(t, clierr.Hint(err), "kubectl delete shard alpha")
			closed, on := m.On("a-id")
			require.Equal(t, []string{"alpha", "beta"}, on)
			require.Equal(t, "Unavailable", closed.Phase)
		}
		w.Runtime.Kcp.Unregister("alpha")
		require.NoError(t, moves.Run(t.Context()), "the shard no longer exists")
	})
}

// The rotation of the encryption key needs moves that have begun to end. No other move begins meanwhile.
func TestMovesWhileTheEncryptionKeyIsRotated(t *testing.T) {
	for _, drain := range []bool{false, true} {
		inWorld(t, strings.Replace(threeShards, "spec: {", "spec: {encryption: {}, ", 1), func(t *testing.T, w *world) {
			r, m := w.moving(t, toBeta("root:a"), onShard("alpha", "a", "b")...)
			endIn(t, r.Run, m, "Migrating")
			rotated := *w.Runtime.PKI()
			rotated.Encryption.Phase = pki.PhaseSwitch
			w.Runtime.OtherRun(&rotated)
			const refused = "workspaces cannot move while their objects are encrypted with another key: they move as they are stored"
			if drain {
				remove := &shards.RemoveShards{Topology: w.Topology, Runtime: w.Runtime, Names: []string{"alpha"}, Drain: true, Observe: w.Observe(t),
					Now: time.Now, CheckEdit: func() error { return nil }}
				require.EqualError(t, remove.Run(t.Context()), refused)
			} else {
				require.NoError(t, r.Run(t.Context()))
			}
			livesOn(t, m, "a-id", "beta")
			r.Choice = toBeta("root:b")
			require.EqualError(t, r.Run(t.Context()), refused)
			livesOn(t, m, "b-id", "alpha")
		})
	}
}

// A destination that vanishes leaves the workspace closed on its shard until it is back.
func TestMovesToAShardThatVanishes(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		r, m := w.moving(t, toBeta("root:a"), onShard("alpha", "a")...)
		r.Timeout = time.Minute
		beta := kcp.Shard{}
		m.During = func(phase, _ string) {
			if phase == "Migrating" && beta.Name == "" {
				beta = m.Unregister("beta")
			}
		}
		err := r.Run(t.Context())
		require.ErrorContains(t, err, "timed out after 1m0s")
		require.ErrorContains(t, err, "root:a is on shard alpha, closed")
		w.Runtime.Kcp.Register(beta)
		require.NoError(t, r.Run(t.Context()))
		require.Equal(t, map[string]string{"first": "yes"}, livesOn(t, m, "a-id", "beta").Data)
	})
}

// The run of another command that has not finished stays the last run.
func TestMovesKeepTheMarkOfAnotherRun(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		r, m := w.moving(t, toBeta("root:a"), onShard("alpha", "a")...)
		w.Runtime.Command = "kcpctl up"
		known, err := w.Runtime.Record(t.Context())
		require.NoError(t, err)
		require.NoError(t, w.Runtime.Begin(t.Context(), nil, known))
		w.Runtime.Forget()
		require.NoError(t, r.Run(t.Context()))
		livesOn(t, m, "a-id", "beta")
		_, unfinished, err := w.Runtime.Runs(t.Context())
		require.NoError(t, err)
		require.Equal(t, "kcpctl up", unfinished.Command)
		require.NotContains(t, w.Runtime.Calls(), "Begin")
	})
}

func numbered(shard string, n int) []fakekcp.Cluster {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s%02d", shard, i))
	}
	return onShard(shard, names...)
}

func TestRebalance(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		all := slices.Concat(numbered("alpha", 9), numbered("gamma", 3))
		for i := range all {
			all[i].Selector = map[string]string{"workspaces": "yes"}
		}
		all[0].Phase = "Initializing" // it counts, and stays
		r, m := w.moving(t, shards.Balanced{Within: 10}, all...)
		for _, shard := range []string{"alpha", "beta", "gamma"} {
			w.Runtime.Kcp.Label(shard, "workspaces", "yes")
		}
		w.Runtime.Kcp.Register(kcp.Shard{Name: "root", Cordoned: true})
		moves, err := r.Check(t.Context())
		require.NoError(t, err)
		require.Equal(t, []shards.WorkspaceMove{
			{"root:alpha01", "alpha01-id", "alpha", "beta"}, {"root:alpha02", "alpha02-id", "alpha", "beta"},
			{"root:alpha03", "alpha03-id", "alpha", "beta"}, {"root:alpha04", "alpha04-id", "alpha", "beta"},
		}[:len(moves)], moves)
		require.Len(t, moves, 4)
		r.Choice = shards.Balanced{Within: 10, MaxMoves: 1}
		require.NoError(t, r.Run(t.Context()))
		livesOn(t, m, "alpha01-id", "beta")
		livesOn(t, m, "alpha02-id", "alpha")
		r.Choice = shards.Balanced{Within: 10}
		require.NoError(t, r.Run(t.Context()))
		livesOn(t, m, "alpha04-id", "beta")
		moves, err = r.Check(t.Context())
		require.NoError(t, err)
		require.Empty(t, moves)
	})
}

// A workspace that an interrupted run moves counts on the shard that it moves to.
func TestRebalanceCountsWhatIsMoving(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		r, m := w.moving(t, shards.Balanced{Within: 10}, numbered("alpha", 4)...)
		w.Runtime.Kcp.Register(kcp.Shard{Name: "root", Cordoned: true})
		w.Runtime.Kcp.Register(kcp.Shard{Name: "gamma", Cordoned: true})
		before, err := r.Check(t.Context())
		require.NoError(t, err)
		require.Len(t, before, 1)
		endIn(t, r.Run, m, "Migrating")
		after, err := r.Check(t.Context())
		require.NoError(t, err)
		require.Empty(t, after)
		require.NoError(t, r.Run(t.Context()))
		livesOn(t, m, before[0].Cluster, "beta")
	})
}

// kcp answers no requests to a logical cluster in a process that it has left: it may come back after a restart.
func TestMovesBackAfterARestart(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		r, m := w.moving(t, toBeta("root:a"), onShard("alpha", "a")...)
		move := func(to string) error {
			r.Choice = shards.Selected{Workspaces: []string{"root:a"}, To: to}
			moves, err := r.Check(t.Context())
			if err != nil {
				return err
			}
			r.Confirmed = moves
			return r.Run(t.Context())
		}
		require.NoError(t, move("beta"))
		err := move("alpha")
		require.ErrorContains(t, err, "it was on shard alpha since this shard started")
		require.ErrorContains(t, err, "kcpctl restart shard/alpha")
		livesOn(t, m, "a-id", "beta")

		require.NoError(t, move("gamma"))
		w.Runtime.Kcp.Restart("shard/alpha")
		require.NoError(t, move("alpha"))
		livesOn(t, m, "a-id", "alpha")
		require.True(t, m.Serves("a-id"))
		require.ErrorContains(t, move("gamma"), "kcpctl restart shard/gamma")
	})
}

// A rebalance moves nothing back to a process that it has left.
func TestRebalanceMovesNothingBack(t *testing.T) {
	inWorld(t, threeShards, func(t *testing.T, w *world) {
		r, m := w.moving(t, toBeta("root:a", "root:b", "root:c"), onShard("alpha", "a", "b", "c")...)
		for _, choice := range []shards.Choice{r.Choice, shards.Balanced{Within: 10}} {
			r.Choice = choice
			moves, err := r.Check(t.Context())
			require.NoError(t, err)
			r.Confirmed = moves
			require.NoError(t, r.Run(t.Context()))
		}
		for _, name := range []string{"a-id", "b-id", "c-id"} {
			require.True(t, m.Serves(name), name)
		}
	})
}
