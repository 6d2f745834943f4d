package deploy_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

// rotator is run.RotateCAs or run.RotateKey.
type rotator interface {
	Run(context.Context) (pki.Phase, error)
	Finish(context.Context) error
}

// rotation is a rotation in a world, its common part, and the titles of its steps.
func (w *world) rotation(all ...pki.Rotation) (rotator, *deploy.Rotate, *[]string) {
	var titles []string
	rotate := deploy.Rotate{
		Rotations: all, Topology: w.Topology, Store: w.Runtime.Store(), Up: w.Up, Now: time.Now,
		Begin: func(title string) func() {
			titles = append(titles, title)
			return func() {}
		},
	}
	if rotate.Rotations.OfServiceAccount() {
		key := &deploy.RotateKey{Rotate: rotate}
		return key, &key.Rotate, &titles
	}
	cas := &deploy.RotateCAs{Rotate: rotate}
	return cas, &cas.Rotate, &titles
}

// each rotation is tried in a world of its own.
func eachRotation(t *testing.T, test func(t *testing.T, w *world, r pki.Rotation)) {
	for _, r := range pki.AllRotations() {
		if r == (pki.EncryptionRotation{}) {
			continue // see TestRotateEncryption
		}
		t.Run(r.String(), func(t *testing.T) {
			inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
				w.MustRun(t)
				w.Runtime.Forget()
				test(t, w, r)
			})
		})
	}
}

func isKey(r pki.Rotation) bool { return r == (pki.KeyRotation{}) }

// settled is the phase in which a rotation stays after a run.
func settled(r pki.Rotation) pki.Phase {
	if isKey(r) {
		return pki.PhaseNone
	}
	return pki.PhaseSwitch
}

func TestRotateTrustsFirst(t *testing.T) {
	eachRotation(t, func(t *testing.T, w *world, r pki.Rotation) {
		rotate, _, titles := w.rotation(r)
		phase, err := rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, settled(r), phase)
		require.Equal(t, []string{
			fmt.Sprintf("distribute a new %s", r),
			fmt.Sprintf("switch to the new %s", r),
		}, *titles)

		before := w.Runtime.PKI()
		require.True(t, w.MustRun(t).Plan.Empty(), "up undoes nothing")
		require.Empty(t, cmp.Diff(before, w.Runtime.PKI()))
	})
}

func TestRotatePauses(t *testing.T) {
	eachRotation(t, func(t *testing.T, w *world, r pki.Rotation) {
		rotate, common, titles := w.rotation(r)
		common.Pause = true
		phase, err := rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, pki.PhaseDistribute, phase)
		require.Equal(t, pki.PhaseDistribute, r.Phase(w.Runtime.PKI()))
		require.True(t, w.MustRun(t).Plan.Empty(), "up undoes nothing")

		*titles = nil
		phase, err = rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, settled(r), phase, "the same command goes on")
		require.Equal(t, []string{
			fmt.Sprintf("make sure that the new %s is known everywhere", r),
			fmt.Sprintf("switch to the new %s", r),
		}, *titles)
	})
}

func TestRotateStaysUntilItIsFinished(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		first := w.Runtime.PKI().CAs[topology.ServerCA]
		rotate, _, titles := w.rotation(pki.RotationOf(topology.ServerCA))
		_, err := rotate.Run(t.Context())
		require.NoError(t, err)
		second := w.Runtime.PKI().CAs[topology.ServerCA]
		*titles = nil
		phase, err := rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, pki.PhaseSwitch, phase, "a second run begins no other rotation")
		require.Equal(t, second, w.Runtime.PKI().CAs[topology.ServerCA])
		require.Equal(t, first.Cert, second.Previous)

		require.NoError(t, rotate.Finish(t.Context()))
		require.Equal(t, pki.Authority{Pair: second.Pair}, w.Runtime.PKI().CAs[topology.ServerCA])
		require.Equal(t, []string{
			"make sure that everything has switched to the new server CA",
			"make sure that everything has switched to the new server CA",
			"remove the previous server CA",
		}, *titles)
	})
}

// Authorities that are rotated together share every roll, also with one that is ahead of the others.
func TestRotateSeveralAtOnce(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		first := w.Runtime.PKI().CAs
		ahead, common, _ := w.rotation(pki.RotationOf(topology.ClientCA))
		common.Pause = true
		_, err := ahead.Run(t.Context())
		require.NoError(t, err)

		rotate, _, titles := w.rotation(pki.RotationOf(topology.ServerCA), pki.RotationOf(topology.ClientCA))
		phase, err := rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, pki.PhaseSwitch, phase)
		require.NoError(t, rotate.Finish(t.Context()))
		require.Equal(t, []string{
			"distribute a new server CA",
			"switch to the new server CA, client CA",
			"make sure that everything has switched to the new server CA, client CA",
			"remove the previous server CA, client CA",
		}, *titles)
		for ca, a := range w.Runtime.PKI().CAs {
			rotated := ca == topology.ServerCA || ca == topology.ClientCA
			require.Equal(t, rotated, string(a.Cert) != string(first[ca].Cert), ca)
			require.Empty(t, a.Previous, ca)
		}
	})
}

func TestRotateKeepsEarlierServiceAccountKeys(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		rotate, _, _ := w.rotation(pki.KeyRotation{})
		for want := range 3 {
			n, err := pki.EarlierKeys(w.Runtime.PKI())
			require.NoError(t, err)
			require.Equal(t, want, n)
			_, err = rotate.Run(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, rotate.Finish(t.Context()))
		n, err := pki.EarlierKeys(w.Runtime.PKI())
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

func TestFinishRefusesWhatIsHalfWay(t *testing.T) {
	eachRotation(t, func(t *testing.T, w *world, r pki.Rotation) {
		rotate, common, _ := w.rotation(r)
		common.Pause = true
		_, err := rotate.Run(t.Context())
		require.NoError(t, err)
		before := w.Runtime.PKI()
		runtest.RequireError(t, rotate.Finish(t.Context()), clierr.Failed,
			fmt.Sprintf("the rotation of the %s is in the phase \"distribute\": the new one does not sign everywhere yet", r))
		require.Equal(t, before, w.Runtime.PKI())
	})
}

func TestRotateNeedsAuthorities(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		rotate, _, _ := w.rotation(pki.RotationOf(topology.ClientCA))
		_, err := rotate.Run(t.Context())
		runtest.RequireError(t, err, clierr.Failed, `kcp "demo" has no certificates yet: memory is empty`)
	})
}

// An authority that cannot certify its successor must not be replaced before all clients outside trust the next one.
func TestRotatePausesWhereClientsWouldBeCutOff(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		keyless := w.Runtime.PKI().CAs[topology.ServerCA]
		keyless.Key = nil
		w.Runtime.PKI().CAs[topology.ServerCA] = keyless
		rotate, _, _ := w.rotation(pki.RotationOf(topology.ServerCA))
		phase, err := rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, pki.PhaseDistribute, phase)
		phase, err = rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, pki.PhaseSwitch, phase)
	})
}

// A run that is interrupted before it stops does not skip the stop: the next one ends there.
func TestRotateStopsAfterAnInterruption(t *testing.T) {
	for name, begin := range map[string]func(*world, *deploy.Rotate){
		"--pause": func(_ *world, r *deploy.Rotate) { r.Pause = true },
		"clients would be cut off": func(w *world, _ *deploy.Rotate) {
			keyless := w.Runtime.PKI().CAs[topology.ServerCA]
			keyless.Key = nil
			w.Runtime.PKI().CAs[topology.ServerCA] = keyless
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
				w.MustRun(t)
				rotate, common, _ := w.rotation(pki.RotationOf(topology.ServerCA))
				begin(w, common)
				w.Runtime.On("Apply front-proxy/main", func() error { return errKilled })
				_, err := rotate.Run(t.Context())
				require.ErrorContains(t, err, errKilled.Error())
				w.Runtime.On("Apply front-proxy/main", func() error { return nil })
				for _, want := range []pki.Phase{pki.PhaseDistribute, pki.PhaseSwitch} {
					phase, err := rotate.Run(t.Context())
					require.NoError(t, err)
					require.Equal(t, want, phase)
				}
			})
		})
	}
}

// A supplied authority is never ignored: it is distributed only if it can sign later, and a rotation to another one that
// is in progress comes first.
func TestRotateToASuppliedAuthority(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		w.MustRun(t)
		before := w.Runtime.PKI()
		begin := func(r pki.Rotation, pause bool) (pki.Phase, error) {
			rotate, common, _ := w.rotation(r)
			common.Pause = pause
			return rotate.Run(t.Context())
		}
		_, err := begin(supplied(t, x509.ExtKeyUsageClientAuth), true)
		require.ErrorContains(t, err, "with the new server CA, certificates do not fit together")
		require.Equal(t, before, w.Runtime.PKI())

		first, second := supplied(t, x509.ExtKeyUsageServerAuth), supplied(t, x509.ExtKeyUsageServerAuth)
		for _, want := range []pki.Phase{pki.PhaseDistribute, pki.PhaseSwitch} {
			phase, err := begin(first, want == pki.PhaseDistribute)
			require.NoError(t, err)
			require.Equal(t, want, phase)
			_, err = begin(second, false)
			runtest.RequireError(t, err, clierr.Conflict, fmt.Sprintf("the server CA is being rotated to another authority than "+
				"the supplied one (phase %q); nothing was changed", want))
		}
		_, err = begin(first, false)
		require.NoError(t, err)
	})
}

// If the next authority cannot be used, the rotation can end, and another one can begin.
func TestCancelRotation(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		w.MustRun(t)
		before := w.Runtime.PKI().CAs[topology.ServerCA]
		rotate := func(r pki.Rotation, pause bool) (*deploy.RotateCAs, error) {
			rotate, common, _ := w.rotation(r)
			common.Pause = pause
			cas, _ := rotate.(*deploy.RotateCAs)
			_, err := cas.Run(t.Context())
			return cas, err
		}
		_, err := rotate(supplied(t, x509.ExtKeyUsageServerAuth), true)
		require.NoError(t, err)
		require.NotEmpty(t, w.Runtime.PKI().CAs[topology.ServerCA].Next.Cert)
		time.Sleep(1001 * time.Hour)
		cas, err := rotate(pki.RotationOf(topology.ServerCA), false)
		require.Equal(t, clierr.Failed, clierr.Code(err))
		require.ErrorContains(t, err, "the new server CA cannot be used; nothing was changed: rotate the server CA: "+
			"the server CA: it expired on")
		require.Contains(t, clierr.Hint(err), "kcpctl certs rotate-ca server --cancel")

		canceled, err := cas.Cancel(t.Context())
		require.NoError(t, err)
		require.Equal(t, "server CA", canceled.String())
		require.Equal(t, before, w.Runtime.PKI().CAs[topology.ServerCA])
		require.True(t, w.MustRun(t).Plan.Empty(), "everything has it")
		canceled, err = cas.Cancel(t.Context())
		require.NoError(t, err)
		require.Empty(t, canceled)

		cas, err = rotate(supplied(t, x509.ExtKeyUsageServerAuth), false)
		require.NoError(t, err)
		_, err = cas.Cancel(t.Context())
		runtest.RequireError(t, err, clierr.Failed, `the rotation of the server CA is in the phase "switch": the new one signs already`)
	})
}

// Wherever a cancellation dies, the same command continues.
func TestCancelSurvivesACrashAtEveryCall(t *testing.T) {
	for _, call := range []string{"Load", "Plan", "Lock", "Save", "Begin", "Apply root-shard", "Apply front-proxy/main", "Finish"} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
				w.MustRun(t)
				before := w.Runtime.PKI().CAs[topology.ServerCA]
				for n := 0; ; n++ {
					require.Less(t, n, 9)
					begun, common, _ := w.rotation(pki.RotationOf(topology.ServerCA))
					common.Pause = true
					_, err := begun.Run(t.Context())
					require.NoError(t, err)
					cas, _ := begun.(*deploy.RotateCAs)
					left := n
					w.Runtime.On(call, func() error {
						if left--; left < 0 {
							return errKilled
						}
						return nil
					})
					_, died := cas.Cancel(t.Context())
					w.Runtime.On(call, func() error { return nil })
					if died != nil {
						require.ErrorContains(t, died, errKilled.Error())
						w.Up.Options = deploy.UpOptions{}
						if call == "Begin" { // the store is ahead of the record
							_, err = w.Run(t)
							require.ErrorContains(t, err, "a run with --cancel was interrupted: run it again")
						}
						_, err = cas.Cancel(t.Context())
						require.NoError(t, err)
					}
					w.Up.Options = deploy.UpOptions{}
					require.Equal(t, before, w.Runtime.PKI().CAs[topology.ServerCA])
					require.True(t, w.MustRun(t).Plan.Empty())
					if died == nil {
						return // there was no such call
					}
				}
			})
		})
	}
}

// supplied is the rotation to a server CA that a user supplies, whose certificates have a usage.
func supplied(t *testing.T, usage x509.ExtKeyUsage) pki.Rotation {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "corp"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	r, err := pki.RotationOf(topology.ServerCA).To(&pki.State{CAs: map[topology.CA]pki.Authority{
		topology.ServerCA: {Pair: pki.Pair{
			Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
			Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
		}},
	}}, time.Now())
	require.NoError(t, err)
	return r
}

var errKilled = errors.New("killed")

// Wherever a rotation dies, no client is cut off, and the same command ends with one new authority, not with two.
func TestRotateSurvivesACrashAtEveryCall(t *testing.T) {
	for _, r := range []pki.Rotation{pki.RotationOf(topology.ServerCA), pki.KeyRotation{}} {
		t.Run(r.String(), func(t *testing.T) {
			inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
				w.Up.Options.SkipCanary = true
				w.MustRun(t)
				for _, call := range []string{
					"Load", "Generation", "Plan", "Lock", "Save", "Begin", "Apply base/default", "Apply root-shard",
					"Apply front-proxy/main", "Finish",
				} {
					for n := 0; w.crashAndContinue(t, r, call, n); n++ {
						require.Less(t, n, 9, call)
					}
				}
			})
		})
	}
}

// crashAndContinue rotates, dies when a call comes after n others, and rotates again. It reports whether there was such
// a call.
func (w *world) crashAndContinue(t *testing.T, r pki.Rotation, call string, n int) bool {
	t.Helper()
	rotate, _, _ := w.rotation(r)
	first := fingerprint(w.Runtime.PKI(), r)
	w.Runtime.On(call, func() error {
		if n--; n < 0 {
			return errKilled
		}
		return nil
	})
	_, err := rotate.Run(t.Context())
	w.Runtime.On(call, func() error { return nil })
	crashed := err != nil
	if crashed {
		require.ErrorContains(t, err, errKilled.Error(), call)
		require.NoError(t, render.Prove(w.Topology, w.completed(t, w.Runtime.PKI()), w.Up.Now()))
		_, err = rotate.Run(t.Context())
		require.NoError(t, err, call)
	}
	require.True(t, w.MustRun(t).Plan.Empty(), call)
	require.NotEqual(t, first, fingerprint(w.Runtime.PKI(), r), call)
	if ca, ok := r.(pki.CARotation); ok {
		require.Equal(t, first, string(w.Runtime.PKI().CAs[ca.CA()].Previous), "one rotation, not two")
		require.NoError(t, rotate.Finish(t.Context()))
	}
	require.Equal(t, pki.PhaseNone, r.Phase(w.Runtime.PKI()))
	return crashed
}

// completed is a state as the next up makes it.
func (w *world) completed(t *testing.T, s *pki.State) *pki.State {
	t.Helper()
	res, err := pki.Ensure(w.Topology, s, pki.Options{Now: w.Up.Now()})
	require.NoError(t, err)
	return res.State
}

// fingerprint is what signs.
func fingerprint(s *pki.State, r pki.Rotation) string {
	ca, ok := r.(pki.CARotation)
	if !ok {
		return string(s.ServiceAccount.Key)
	}
	return string(s.CAs[ca.CA()].Cert)
}

func TestRenewRollsOnlyTheUsers(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		before := w.Runtime.PKI()
		w.Up.Options = deploy.UpOptions{
			Only: []topology.ID{"shard/alpha"}, Renew: func(c pki.Cert) bool { return c.Component == "shard/alpha" },
		}
		res := w.MustRun(t)
		require.Equal(t, []string{"Lock", "Save", "Begin", "Apply shard/alpha", "Finish", "Unlock"}, w.Runtime.Calls())
		require.Equal(t, len(pki.CertsOf(w.Topology, w.Topology.Component("shard/alpha"))), res.PKI.Renewed())
		for _, c := range pki.Table(w.Topology) {
			same := cmp.Equal(before.Leaves[c.Key()], w.Runtime.PKI().Leaves[c.Key()])
			require.Equal(t, c.Component != "shard/alpha", same, c.Secret)
		}
		require.Equal(t, before.CAs, w.Runtime.PKI().CAs)
	})
}

func TestChangeStoreNeedsNothingElse(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		theirs := w.completed(t, &pki.State{}).Authorities()
		unwanted := func() error { return errors.New("not needed") }
		w.Runtime.On("Plan", unwanted)
		require.NoError(t, deploy.ChangeStore(t.Context(), w.Topology, w.Runtime, w.Runtime.Store(), func(s *pki.State) (*pki.State, error) {
			out, _, err := pki.Import(s, theirs, w.Up.Now())
			return out, err
		}))
		require.Equal(t, []string{"Apply namespaces", "Lock", "Save", "Unlock"}, w.Runtime.Calls())
		w.Runtime.On("Plan", nil)
		w.MustRun(t)
		require.Equal(t, theirs.CAs, w.Runtime.PKI().CAs, "up uses what was imported")
	})
}

// The store may have the only copy of the key without which data cannot be read. It is not replaced on the way.
func TestReplaceInStoreKeepsTheEncryptionKey(t *testing.T) {
	inWorld(t, encrypted, func(t *testing.T, w *world) {
		w.MustRun(t)
		before := *w.Runtime.PKI()
		theirs := w.completed(t, &pki.State{}).Authorities()
		replace := func(s *pki.State) (*pki.State, error) {
			out, _, err := pki.ImportReplacing(s, theirs, w.Up.Now())
			return out, err
		}
		err := deploy.ReplaceInStore(t.Context(), w.Topology, w.Runtime, w.Runtime.Store(), replace)
		require.ErrorContains(t, err, "does not have the encryption key of installation")
		require.Equal(t, before.Encryption, w.Runtime.PKI().Encryption)
		require.Equal(t, before.CAs, w.Runtime.PKI().CAs)

		theirs.Encryption = pki.Encryption{}
		require.NoError(t, deploy.ReplaceInStore(t.Context(), w.Topology, w.Runtime, w.Runtime.Store(), replace))
		require.Equal(t, before.Encryption, w.Runtime.PKI().Encryption)
		require.Equal(t, theirs.CAs, w.Runtime.PKI().CAs)
	})
}
