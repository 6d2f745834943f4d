package etcds_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/etcds"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeetcd"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const threeMembers = runtest.Minimal + "spec: {etcd: {managed: {replicas: 3}}}\n"

// memberWorld is an etcd and a replacement of its member 1.
type memberWorld struct {
	t       *testing.T
	rt      *fakeruntime.Runtime
	etcd    *fakeetcd.Etcd
	c       *topology.Component
	replace *etcds.ReplaceMember
	steps   []string
}

// withMembers runs a test with an etcd in a bubble, in which time passes only while all goroutines wait.
func withMembers(t *testing.T, text string, test func(*testing.T, *memberWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		top := topologytest.Build(t, text)
		issued := pkitest.Issue(t, top, time.Now())
		w := &memberWorld{t: t, rt: fakeruntime.New(t, top), c: top.OfKind(topology.Etcd)[0]}
		w.rt.OtherRun(issued)
		namespace := plan.Item{Component: top.Components[0].ID()}
		namespace.Kind = "Namespace"
		require.NoError(t, w.rt.Apply(t.Context(), []plan.Item{namespace}, run.PlanOptions{}))
		w.rt.Forget()
		w.rt.States(w.c.ID(), ready.State{Ready: true, Replicas: w.c.Replicas, ReadyReplicas: w.c.Replicas})
		w.etcd = fakeetcd.New(t, w.c, issued)
		w.replace = &etcds.ReplaceMember{
			Members: etcds.Members{Store: w.rt.Store(), Pods: w.etcd, Now: time.Now}, Runtime: w.rt, Etcd: w.c, Index: 1, Timeout: time.Minute,
			Observe: func(e run.Event) { w.steps = append(w.steps, fmt.Sprintf("%s %s %s", e.Name, e.Status, e.Message)) },
		}
		test(t, w)
		require.Empty(t, w.etcd.Forgot(), "a member came back under its ID without its data")
	})
}

func (w *memberWorld) members() []etcds.EtcdMember {
	w.t.Helper()
	all, err := w.replace.List(w.t.Context(), w.c)
	require.NoError(w.t, err)
	return all
}

// whole demands an etcd as if nothing had happened.
func (w *memberWorld) whole() {
	w.t.Helper()
	for _, m := range w.members() {
		require.True(w.t, m.Healthy, "%+v", m)
	}
	require.Nil(w.t, w.etcd.Env())
}

func TestMembersAreListed(t *testing.T) {
	withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
		w.etcd.Lose(1)
		require.Equal(t, []etcds.EtcdMember{
			{Etcd: "etcd/root", Pod: "demo-etcd-root-0", ID: "1", Healthy: true, Leader: true, DBSize: 3 << 20},
			{Etcd: "etcd/root", Pod: "demo-etcd-root-1", ID: "2", Reason: "connect to demo-etcd-root-1: connection refused"},
			{Etcd: "etcd/root", Pod: "demo-etcd-root-2", ID: "3", Healthy: true, DBSize: 3 << 20},
		}, w.members())
		w.etcd.Stop(2)
		for _, m := range w.members() {
			require.False(t, m.Healthy)
			require.NotEmpty(t, m.Reason)
		}
	})
}

// An alarm is not a lost majority: all members report it, and only a member that it names as corrupt is unhealthy.
func TestAlarmsOfMembers(t *testing.T) {
	withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
		healthy := func() (out []bool) {
			for _, m := range w.members() {
				out = append(out, m.Healthy)
			}
			return out
		}
		w.etcd.Raise(etcd.AlarmNoSpace, 1)
		require.Equal(t, []bool{true, true, true}, healthy())
		require.Empty(t, w.members()[0].Alarms)
		require.Equal(t, []string{"NOSPACE"}, w.members()[1].Alarms)
		w.etcd.Raise(etcd.AlarmCorrupt, 2)
		require.Equal(t, []bool{true, true, false}, healthy())
		require.Equal(t, "alarm CORRUPT: its data differs from that of the other members", w.members()[2].Reason)
		client, doubt, err := w.replace.Client(t.Context(), w.c)
		require.NoError(t, err)
		client.Close()
		require.NoError(t, doubt, "a member that is not corrupt has everything")
		w.etcd.RaiseUnknown(etcd.AlarmCorrupt)
		require.Equal(t, []bool{true, true, false}, healthy())
		require.Equal(t, []string{"CORRUPT", "NOSPACE"}, w.members()[1].Alarms)
		client, doubt, err = w.replace.Client(t.Context(), w.c)
		require.NoError(t, err)
		client.Close()
		require.ErrorContains(t, doubt, "etcd/root has the alarm CORRUPT: the data of demo-etcd-root-")
	})
}

// The alarm of a member that is no longer one would keep the others from writing.
func TestReplaceMemberThatIsCorrupt(t *testing.T) {
	withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
		w.etcd.Raise(etcd.AlarmCorrupt, 1)
		w.etcd.Raise(etcd.AlarmNoSpace, 0)
		failed := false
		w.etcd.On(func(call string) error {
			if call == "disarm" && !failed {
				failed = true
				return errors.New("etcdserver: request timed out")
			}
			return nil
		})
		require.NoError(t, w.replace.Run(t.Context()), "it is repeated, although the member is removed by then")
		w.whole()
		require.Equal(t, []string{"hold", "remove", "disarm", "empty", "add", "join", "release"}, w.etcd.Calls())
		require.Equal(t, []string{"NOSPACE"}, w.members()[0].Alarms, "its quota is still reached")
		require.Empty(t, w.members()[1].Alarms)
	})
}

// A run that ended between the removal and the disarming knows the removed member, which is no longer listed.
func TestReplaceMemberDisarmsAfterAnInterruption(t *testing.T) {
	withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
		w.etcd.Raise(etcd.AlarmCorrupt, 1)
		ctx, crash := context.WithCancelCause(t.Context())
		w.etcd.On(func(call string) error {
			if call != "disarm" {
				return nil
			}
			crash(errors.New("killed"))
			return errors.New("killed")
		})
		require.Error(t, w.replace.Run(ctx))
		w.etcd.On(func(string) error { return nil })
		require.NoError(t, w.replace.Run(t.Context()))
		w.whole()
		require.Equal(t, []string{"hold", "remove", "hold", "disarm", "empty", "add", "join", "release"}, w.etcd.Calls())
		require.Empty(t, w.members()[0].Alarms)
	})
}

// An alarm of a member that this command has not removed stays: a user has removed it, or it names none.
func TestReplaceMemberKeepsAlarmsOfOthers(t *testing.T) {
	withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
		w.etcd.Raise(etcd.AlarmCorrupt, 1)
		w.etcd.RaiseOf(etcd.AlarmCorrupt, 99)
		require.NoError(t, w.replace.Run(t.Context()))
		w.whole()
		for _, m := range w.members() {
			require.Equal(t, []string{"CORRUPT"}, m.Alarms)
		}
	})
}

func TestReplaceMember(t *testing.T) {
	withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
		w.etcd.Lose(1)
		require.NoError(t, w.replace.Run(t.Context()))
		w.whole()
		require.Equal(t, []string{"hold", "remove", "empty", "add", "join", "release"}, w.etcd.Calls())
		require.Equal(t, []string{"Lock", "Unlock"}, w.rt.Calls())
		require.Equal(t, "4", w.members()[1].ID)
		require.Contains(t, w.steps, "members done 2 of 3 are healthy; demo-etcd-root-1: connect to demo-etcd-root-1: connection refused")
		require.Equal(t, "join done demo-etcd-root-1 is healthy and in sync with the other members", w.steps[len(w.steps)-1])
	})
}

// It may end before or after any of its writes, in which case the write may have been carried out or not. The pod
// starts repeatedly meanwhile. The same command continues.
func TestReplaceMemberContinuesFromAnywhere(t *testing.T) {
	errCrash := errors.New("killed")
	for n := range 6 {
		for _, carriedOut := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, carried out %t", n+1, carriedOut), func(t *testing.T) {
				withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
					w.etcd.Lose(1)
					ctx, crash := context.WithCancelCause(t.Context())
					writes := 0
					w.etcd.On(func(string) error {
						if writes++; writes <= n {
							return nil
						}
						crash(errCrash)
						if carriedOut && writes == n+1 {
							return nil
						}
						return errCrash
					})
					err := w.replace.Run(ctx)
					if n < 5 || !carriedOut {
						require.Error(t, err)
					}
					w.etcd.On(func(string) error { return nil })
					if err = w.replace.Run(t.Context()); err != nil {
						require.ErrorContains(t, err, "is healthy: it is not replaced", "after the last write there is nothing left to do")
					}
					w.whole()
				})
			})
		}
	}
}

// The new volume is recorded before the last sign of the replacement is gone: the next up refuses another one.
func TestReplaceMemberContinuesUntilItIsRecorded(t *testing.T) {
	withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
		known := (&record.Record{}).With(w.rt.PKI(), map[topology.ID]record.Data{w.c.ID(): {Members: 3}})
		require.NoError(t, w.rt.Begin(t.Context(), nil, known))
		w.rt.Forget()
		w.etcd.Lose(1)
		w.rt.On("Keep", func() error { return errors.New("killed") })
		require.ErrorContains(t, w.replace.Run(t.Context()), "killed")
		w.rt.On("Keep", nil)
		require.NoError(t, w.replace.Run(t.Context()))
		w.whole()
		require.Equal(t, []string{"Lock", "Unlock", "Lock", "Keep", "Unlock"}, w.rt.Calls())
	})
}

func TestReplaceMemberRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		lose func(*fakeetcd.Etcd)
		want string
		hint string
	}{
		"a healthy member": {
			text: threeMembers, lose: func(*fakeetcd.Etcd) {},
			want: "demo-etcd-root-1 is healthy: it is not replaced", hint: "kcpctl etcd members",
		},
		"an etcd without a majority": {
			text: threeMembers, lose: func(e *fakeetcd.Etcd) { e.Lose(1); e.Stop(2) },
			want: "etcd/root has no majority: 0 of 3 members are healthy\n    demo-etcd-root-0: etcdserver: request timed out",
			hint: "bring it back with kcpctl restore BACKUP --shard root",
		},
		"corrupt members": {
			text: threeMembers,
			lose: func(e *fakeetcd.Etcd) { e.Raise(etcd.AlarmCorrupt, 1); e.Raise(etcd.AlarmCorrupt, 2) },
			want: "etcd/root has no majority: 1 of 3 members are healthy\n    demo-etcd-root-1: alarm CORRUPT: its data",
			hint: "with kcpctl backup create --to DIR --without-keys --shard root, and bring it back with kcpctl restore BACKUP --shard root",
		},
		"a corrupt member that is not known": {
			text: threeMembers, lose: func(e *fakeetcd.Etcd) { e.RaiseUnknown(etcd.AlarmCorrupt) },
			want: "etcd/root has the alarm CORRUPT, which names none of its members",
			hint: "bring it back with kcpctl restore BACKUP --shard root",
		},
		"an etcd of one member": {
			text: runtest.Minimal, lose: func(e *fakeetcd.Etcd) { e.Lose(0) },
			want: "etcd/root has only one member: no other member has its data",
			hint: "restore a backup of its volume, or bring it back with kcpctl restore BACKUP --shard root",
		},
	} {
		t.Run(name, func(t *testing.T) {
			withMembers(t, tc.text, func(t *testing.T, w *memberWorld) {
				tc.lose(w.etcd)
				err := w.replace.Run(t.Context())
				require.ErrorContains(t, err, tc.want)
				require.Contains(t, clierr.Hint(err), tc.hint)
				require.Equal(t, clierr.Failed, clierr.Code(err))
				require.Empty(t, w.etcd.Calls())
			})
		})
	}
}

func TestReplaceMemberNeedsTheLock(t *testing.T) {
	withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
		w.etcd.Lose(1)
		w.rt.On("Lock", func() error { return errors.New("the setup is locked") })
		require.ErrorContains(t, w.replace.Run(t.Context()), "the setup is locked")
		require.Empty(t, w.etcd.Calls())
	})
}

// Another run may write as soon as the lock is lost: nothing is written any more.
func TestReplaceMemberStopsWithoutTheLock(t *testing.T) {
	withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
		w.etcd.Lose(1)
		lost := errors.New("lost the lock")
		w.etcd.On(func(call string) error {
			if call == "empty" {
				w.rt.Lose(lost)
			}
			return nil
		})
		require.ErrorContains(t, w.replace.Run(t.Context()), "lost the lock")
		require.Equal(t, []string{"hold", "remove", "empty"}, w.etcd.Calls())
	})
}

// A replacement that ends early says what is missing, why, and what to do.
func TestReplaceMemberSaysWhatIsMissing(t *testing.T) {
	const begin, reason = "demo-etcd-root-1 is not replaced, because ", "etcdserver: unhealthy cluster"
	for call, tc := range map[string]struct {
		want string
		code int
	}{
		"hold":    {begin + "it is still a member: " + reason, clierr.Failed},
		"remove":  {begin + "it is still a member: timed out after 1m0s: " + reason, clierr.NotReady},
		"empty":   {begin + "its volume is not empty: " + reason, clierr.Failed},
		"add":     {begin + "it cannot join yet: timed out after 1m0s: " + reason, clierr.NotReady},
		"join":    {begin + "it cannot join yet: " + reason, clierr.Failed},
		"release": {begin + "it has not joined: " + reason, clierr.Failed},
	} {
		t.Run(call, func(t *testing.T) {
			withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
				w.etcd.Lose(1)
				w.etcd.On(func(c string) error {
					if c == call {
						return errors.New(reason)
					}
					return nil
				})
				err := w.replace.Run(t.Context())
				runtest.RequireError(t, err, tc.code, tc.want)
				require.Contains(t, clierr.Hint(err), "run the command again")
			})
		})
	}
}

// A member that does not join is reported with the reason, and the next run begins again.
func TestReplaceMemberReportsWhatItWaitsFor(t *testing.T) {
	withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
		w.etcd.Lose(1)
		w.etcd.On(func(call string) error {
			if call == "join" {
				w.rt.States(w.c.ID(), ready.State{Replicas: 3, ReadyReplicas: 2, Reason: "no space left"})
			}
			return nil
		})
		err := w.replace.Run(t.Context())
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		require.ErrorContains(t, err, "2/3 ready: no space left")
		require.Equal(t, "run the command again: it continues. To see why, run kcpctl logs etcd/root", clierr.Hint(err))
		require.True(t, slices.Contains(w.steps, "join running 2/3 ready: no space left"), w.steps)
		require.NotNil(t, w.etcd.Env(), "a pod that starts late still joins")
	})
}

// What a replacement deletes is known before it begins, and so is why it cannot.
func TestCheckOfAReplacement(t *testing.T) {
	withMembers(t, threeMembers, func(t *testing.T, w *memberWorld) {
		_, err := w.replace.Check(t.Context())
		require.ErrorContains(t, err, "demo-etcd-root-1 is healthy: it is not replaced")
		w.etcd.Lose(1)
		objects, err := w.replace.Check(t.Context())
		require.NoError(t, err)
		require.Len(t, objects, 2)
		require.Equal(t, "Pod/kcp/demo-etcd-root-1", objects[0].String())
		require.Equal(t, "PersistentVolumeClaim/kcp/data-demo-etcd-root-1", objects[1].String())
		require.Empty(t, w.etcd.Calls())
		require.Empty(t, w.rt.Calls())
	})
}
