package run_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// rotation is a rotation in a world. It notes what each roll was for.
func (w *world) rotation(all ...pki.Rotation) (*run.Rotate, *[]string) {
	var titles []string
	return &run.Rotate{
		Rotations: all, Topology: w.top, Store: w.rt.Store(), Now: time.Now,
		Keep: func(ctx context.Context, change func(*pki.State) (*pki.State, error)) error {
			return run.ChangeStore(ctx, w.top, w.rt, change)
		},
		Roll: func(ctx context.Context, title string, change func(*pki.State) (*pki.State, error)) error {
			titles = append(titles, title)
			w.up.Options.Change = change
			defer func() { w.up.Options.Change = nil }()
			_, err := w.up.Run(ctx)
			return err
		},
	}, &titles
}

// each rotation is tried in a world of its own.
func eachRotation(t *testing.T, test func(t *testing.T, w *world, r pki.Rotation)) {
	for _, r := range pki.AllRotations() {
		t.Run(r.String(), func(t *testing.T) {
			inWorld(t, sharded, func(t *testing.T, w *world) {
				w.mustRun(t)
				w.rt.Forget()
				test(t, w, r)
			})
		})
	}
}

// settled is the phase in which a rotation stays after a run.
func settled(r pki.Rotation) pki.Phase {
	if r.CA() == "" {
		return pki.PhaseNone
	}
	return pki.PhaseSwitch
}

func TestRotateTrustsFirst(t *testing.T) {
	eachRotation(t, func(t *testing.T, w *world, r pki.Rotation) {
		rotate, titles := w.rotation(r)
		phase, err := rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, settled(r), phase)
		require.Equal(t, []string{
			fmt.Sprintf("a new %s: everybody learns to trust it", r),
			fmt.Sprintf("the new %s signs: everybody gets what it signed", r),
		}, *titles)

		before := w.rt.PKI()
		require.True(t, w.mustRun(t).Plan.Empty(), "up undoes nothing")
		require.Empty(t, cmp.Diff(before, w.rt.PKI()))
	})
}

func TestRotatePauses(t *testing.T) {
	eachRotation(t, func(t *testing.T, w *world, r pki.Rotation) {
		rotate, titles := w.rotation(r)
		rotate.Pause = true
		phase, err := rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, pki.PhaseDistribute, phase)
		require.Equal(t, pki.PhaseDistribute, r.Phase(w.rt.PKI()))
		require.True(t, w.mustRun(t).Plan.Empty(), "up undoes nothing")

		*titles = nil
		phase, err = rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, settled(r), phase, "the same command goes on")
		require.Equal(t, []string{
			fmt.Sprintf("the new %s: make sure that everybody trusts it", r),
			fmt.Sprintf("the new %s signs: everybody gets what it signed", r),
		}, *titles)
	})
}

func TestRotateStaysUntilItIsFinished(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		first := w.rt.PKI().CAs[pki.ServerCA]
		rotate, titles := w.rotation(pki.RotationOf(pki.ServerCA))
		_, err := rotate.Run(t.Context())
		require.NoError(t, err)
		second := w.rt.PKI().CAs[pki.ServerCA]
		*titles = nil
		phase, err := rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, pki.PhaseSwitch, phase, "a second run begins no other rotation")
		require.Equal(t, second, w.rt.PKI().CAs[pki.ServerCA])
		require.Equal(t, first.Cert, second.Previous)

		require.NoError(t, rotate.Finish(t.Context()))
		require.Equal(t, pki.Authority{Pair: second.Pair}, w.rt.PKI().CAs[pki.ServerCA])
		require.Equal(t, []string{
			"the new server CA signs: make sure that everybody has what it signed",
			"the new server CA signs: make sure that everybody has what it signed",
			"the previous server CA is dropped",
		}, *titles)
	})
}

// Authorities that are rotated together share every roll, also with one that is ahead of the others.
func TestRotateSeveralAtOnce(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		first := w.rt.PKI().CAs
		ahead, _ := w.rotation(pki.RotationOf(pki.ClientCA))
		ahead.Pause = true
		_, err := ahead.Run(t.Context())
		require.NoError(t, err)

		rotate, titles := w.rotation(pki.RotationOf(pki.ServerCA), pki.RotationOf(pki.ClientCA))
		phase, err := rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, pki.PhaseSwitch, phase)
		require.NoError(t, rotate.Finish(t.Context()))
		require.Equal(t, []string{
			"a new server CA: everybody learns to trust it",
			"the new server CA, client CA signs: everybody gets what it signed",
			"the new server CA, client CA signs: make sure that everybody has what it signed",
			"the previous server CA, client CA is dropped",
		}, *titles)
		for ca, a := range w.rt.PKI().CAs {
			rotated := ca == pki.ServerCA || ca == pki.ClientCA
			require.Equal(t, rotated, string(a.Cert) != string(first[ca].Cert), ca)
			require.Empty(t, a.Previous, ca)
		}
	})
}

func TestRotateKeepsEarlierServiceAccountKeys(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		rotate, _ := w.rotation(pki.RotationOfServiceAccount())
		for want := range 3 {
			n, err := pki.EarlierKeys(w.rt.PKI())
			require.NoError(t, err)
			require.Equal(t, want, n)
			_, err = rotate.Run(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, rotate.Finish(t.Context()))
		n, err := pki.EarlierKeys(w.rt.PKI())
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

func TestFinishRefusesWhatIsHalfWay(t *testing.T) {
	eachRotation(t, func(t *testing.T, w *world, r pki.Rotation) {
		rotate, _ := w.rotation(r)
		rotate.Pause = true
		_, err := rotate.Run(t.Context())
		require.NoError(t, err)
		before := w.rt.PKI()
		requireError(t, rotate.Finish(t.Context()), clierr.Failed,
			fmt.Sprintf("the rotation of the %s is in the phase \"distribute\": the new one does not sign everywhere yet", r))
		require.Equal(t, before, w.rt.PKI())
	})
}

func TestRotateNeedsAuthorities(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		rotate, _ := w.rotation(pki.RotationOf(pki.ClientCA))
		_, err := rotate.Run(t.Context())
		requireError(t, err, clierr.Failed, `kcp "demo" has no certificates yet: there is nothing in memory`)
	})
}

// An authority that cannot vouch for its successor must not be replaced before everybody outside knows the next.
func TestRotatePausesWhereClientsWouldBeCutOff(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		keyless := w.rt.PKI().CAs[pki.ServerCA]
		keyless.Key = nil
		w.rt.PKI().CAs[pki.ServerCA] = keyless
		rotate, _ := w.rotation(pki.RotationOf(pki.ServerCA))
		phase, err := rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, pki.PhaseDistribute, phase)
		phase, err = rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, pki.PhaseSwitch, phase)
	})
}

var errKilled = errors.New("killed")

// Wherever a rotation dies, nobody is cut off, and the same command ends with one new authority, not with two.
func TestRotateSurvivesACrashAtEveryCall(t *testing.T) {
	for _, r := range []pki.Rotation{pki.RotationOf(pki.ServerCA), pki.RotationOfServiceAccount()} {
		t.Run(r.String(), func(t *testing.T) {
			inWorld(t, minimal, func(t *testing.T, w *world) {
				w.up.Options.SkipCanary = true
				w.mustRun(t)
				for _, call := range []string{
					"Load", "Generation", "Plan", "Lock", "Save", "Begin", "Apply base/default", "Apply root-shard",
					"Apply front-proxy/main", "Finish",
				} {
					for n := 0; w.crashAndGoOn(t, r, call, n); n++ {
						require.Less(t, n, 9, call)
					}
				}
			})
		})
	}
}

// crashAndGoOn rotates, dies when a call comes after n others, and rotates again. It tells whether there was such a call.
func (w *world) crashAndGoOn(t *testing.T, r pki.Rotation, call string, n int) bool {
	t.Helper()
	rotate, _ := w.rotation(r)
	first := fingerprint(w.rt.PKI(), r)
	w.rt.On(call, func() error {
		if n--; n < 0 {
			return errKilled
		}
		return nil
	})
	_, err := rotate.Run(t.Context())
	w.rt.On(call, func() error { return nil })
	crashed := err != nil
	if crashed {
		require.ErrorContains(t, err, errKilled.Error(), call)
		require.NoError(t, pki.Prove(w.top, w.completed(t, w.rt.PKI()), w.up.Now()))
		_, err = rotate.Run(t.Context())
		require.NoError(t, err, call)
	}
	require.True(t, w.mustRun(t).Plan.Empty(), call)
	require.NotEqual(t, first, fingerprint(w.rt.PKI(), r), call)
	if r.CA() != "" {
		require.Equal(t, first, string(w.rt.PKI().CAs[r.CA()].Previous), "one rotation, not two")
		require.NoError(t, rotate.Finish(t.Context()))
	}
	require.Equal(t, pki.PhaseNone, r.Phase(w.rt.PKI()))
	return crashed
}

// completed is a state as the next up makes it.
func (w *world) completed(t *testing.T, s *pki.State) *pki.State {
	t.Helper()
	res, err := pki.Ensure(w.top, s, pki.Options{Now: w.up.Now()})
	require.NoError(t, err)
	return res.State
}

// fingerprint is what signs.
func fingerprint(s *pki.State, r pki.Rotation) string {
	if r.CA() == "" {
		return string(s.ServiceAccount.Key)
	}
	return string(s.CAs[r.CA()].Cert)
}

func TestRenewRollsOnlyTheUsers(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		before := w.rt.PKI()
		w.up.Options = run.UpOptions{
			Only: []topology.ID{"shard/alpha"}, Renew: func(c pki.Cert) bool { return c.Component == "shard/alpha" },
		}
		res := w.mustRun(t)
		require.Equal(t, []string{"Lock", "Save", "Begin", "Apply shard/alpha", "Finish", "Unlock"}, w.rt.Calls())
		require.Equal(t, len(pki.CertsOf(w.top, w.top.Component("shard/alpha"))), res.PKI.Renewed())
		for _, c := range pki.Table(w.top) {
			same := cmp.Equal(before.Leaves[c.Key()], w.rt.PKI().Leaves[c.Key()])
			require.Equal(t, c.Component != "shard/alpha", same, c.Secret)
		}
		require.Equal(t, before.CAs, w.rt.PKI().CAs)
	})
}

func TestChangeStoreNeedsNothingElse(t *testing.T) {
	inWorld(t, minimal, func(t *testing.T, w *world) {
		theirs := w.completed(t, &pki.State{}).Authorities()
		unwanted := func() error { return errors.New("not needed") }
		w.rt.On("Plan", unwanted)
		w.rt.On("Preflight", unwanted)
		require.NoError(t, run.ChangeStore(t.Context(), w.top, w.rt, func(s *pki.State) (*pki.State, error) {
			out, _, err := pki.Bring(s, theirs, w.up.Now())
			return out, err
		}))
		require.Equal(t, []string{"Apply namespaces", "Lock", "Save", "Unlock"}, w.rt.Calls())
		w.rt.On("Plan", nil)
		w.rt.On("Preflight", nil)
		w.mustRun(t)
		require.Equal(t, theirs.CAs, w.rt.PKI().CAs, "up uses what was brought")
	})
}
