package deploy_test

import (
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/engine/run/shards"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A restore of record and PKI is refused by everything that writes, and accepted on purpose: then the record is the
// latest one again.
func TestARestoredRecord(t *testing.T) {
	inWorld(t, runtest.Minimal+managed, func(t *testing.T, w *world) {
		w.MustRun(t)
		restore := w.Runtime.Backup()
		w = edited(t, w, changed(managed, "{name: alpha}", "{name: alpha}, {name: beta}"))
		w.MustRun(t)
		restore()
		for what, command := range map[string]func() error{
			"up": func() error { _, err := w.Run(t); return err },
			"remove-shard": func() error {
				return (&shards.RemoveShards{Topology: w.Topology, Runtime: w.Runtime, Names: []string{"alpha"}, Observe: w.Observe(t), Now: time.Now}).Run(t.Context())
			},
			"import of nothing": func() error {
				return deploy.ChangeStore(t.Context(), w.Topology, w.Runtime, w.Runtime.Store(), func(s *pki.State) (*pki.State, error) { return s, nil })
			},
		} {
			w.Runtime.Forget()
			err := command()
			require.ErrorContains(t, err, "is older than what was applied last", what)
			require.Contains(t, clierr.Hint(err), "--allow restored-record", what)
			require.NotContains(t, w.Runtime.Calls(), "Save", what)
			require.NotContains(t, w.Runtime.Calls(), "Begin", what)
		}
		w = to(t, w, managed)
		w.Up.Options.AllowRestoredRecord = true
		_, err := w.Run(t)
		require.ErrorContains(t, err, "shard/beta holds workspaces", "the restored record does not know it, and it runs")
		w = to(t, w, changed(managed, "{name: alpha}", "{name: alpha}, {name: beta}"))
		w.Up.Options.AllowRestoredRecord = true
		w.MustRun(t)
		w.Up.Options.AllowRestoredRecord = false
		require.True(t, w.MustRun(t).Plan.Empty())
	})
}

// Certificates were renewed, perhaps because a key was stolen: a restore brings it back.
func TestARecordFromBeforeARenewal(t *testing.T) {
	inWorld(t, runtest.Minimal+managed, func(t *testing.T, w *world) {
		w.MustRun(t)
		restore := w.Runtime.Backup()
		w.Up.Options.Renew = func(pki.Cert) bool { return true }
		require.Positive(t, w.MustRun(t).PKI.Renewed())
		w.Up.Options.Renew = nil
		require.True(t, w.MustRun(t).Plan.Empty())
		restore()
		_, err := w.Run(t)
		require.ErrorContains(t, err, "is older than what was applied last")
	})
}

// to continues with another setup that was not applied.
func to(t *testing.T, w *world, spec string) *world {
	t.Helper()
	next := newWorld(t, topologytest.Build(t, runtest.Minimal+spec), w.Runtime)
	next.Runtime.Use(next.Topology)
	return next
}

// The record of an earlier kcpctl gets a serial with the next run, which changes no object.
func TestARecordWithoutASerial(t *testing.T) {
	inWorld(t, runtest.Minimal+managed, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.Runtime.EarlierRecord()
		res := w.MustRun(t)
		require.False(t, res.Plan.Empty())
		require.Contains(t, w.Runtime.Calls(), "Begin")
		require.True(t, w.MustRun(t).Plan.Empty())
	})
}

// A user has added a certificate to a live bundle, or a key to those that verify tokens.
func TestForeignTrust(t *testing.T) {
	foreign := func(t *testing.T, w *world) (*pki.State, string, string) {
		s := w.completed(t, &pki.State{})
		f := s.Fingerprints()
		return s, f["client-ca"].Current, f["service-account-key"].Current
	}
	inWorld(t, runtest.Minimal+managed, func(t *testing.T, w *world) {
		w.MustRun(t)
		s, ca, key := foreign(t, w)
		w.Runtime.Edit("ConfigMap/kcp/demo-ca", func(o *unstructured.Unstructured) { appendTo(t, o, "client.crt", s.CAs[topology.ClientCA].Cert, false) })
		w.Runtime.Edit("Secret/kcp/demo-service-account", func(o *unstructured.Unstructured) { appendTo(t, o, "sa.pub", s.ServiceAccount.Public, true) })
		_, err := w.Run(t)
		require.ErrorContains(t, err, "components trust what neither memory nor the record of the installation knows")
		require.ErrorContains(t, err, "client CA: "+ca[:23]+` ("demo-client-ca"), in ConfigMap/kcp/demo-ca`)
		require.ErrorContains(t, err, "service-account key: "+key[:23]+", in Secret/kcp/demo-service-account")
		require.Empty(t, w.Runtime.Calls())
		w.Up.Options.AllowTrustChange = []string{ca[:23]}
		_, err = w.Run(t)
		require.ErrorContains(t, err, key[:23], "each by its own fingerprint")
		w.Up.Options.AllowTrustChange = []string{ca, key}
		w.MustRun(t)
		w.Up.Options.AllowTrustChange = nil
		require.True(t, w.MustRun(t).Plan.Empty())
	})
}

// appendTo appends to an entry of an object, which is encoded in Secrets.
func appendTo(t *testing.T, o *unstructured.Unstructured, entry string, more []byte, encoded bool) {
	t.Helper()
	text, _, _ := unstructured.NestedString(o.Object, "data", entry)
	value := text + string(more)
	if encoded {
		raw, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		value = base64.StdEncoding.EncodeToString(append(raw, more...))
	}
	require.NoError(t, unstructured.SetNestedField(o.Object, value, "data", entry))
}

// The PKI Secret is gone: a replacement creates all authorities, and the installation stays the same one.
func TestLostAuthorities(t *testing.T) {
	inWorld(t, runtest.Minimal+external, func(t *testing.T, w *world) {
		w.MustRun(t)
		before := w.Runtime.PKI()
		lost := &pki.State{CAs: map[topology.CA]pki.Authority{}, Leaves: before.Leaves}
		w.Runtime.OtherRun(lost)
		_, err := w.Run(t)
		require.ErrorContains(t, err, "it is missing")
		w.Up.Options.ReplaceAuthorities = true
		w.MustRun(t)
		require.Equal(t, before.Installation, w.Runtime.PKI().Installation, "with the prefix that its data has in an external etcd")
		require.NotEqual(t, before.Fingerprints(), w.Runtime.PKI().Fingerprints())
		w.Up.Options.ReplaceAuthorities = false
		require.True(t, w.MustRun(t).Plan.Empty())
	})
}

// A member of an etcd reads the authorities that it trusts only when it starts. If the authority is replaced, the first
// member of a roll could not join the others, so all of them start again together, also if a run was interrupted.
func TestMembersRestartTogetherIfTheirAuthorityIsReplaced(t *testing.T) {
	const spec = runtest.Minimal + "spec: {etcd: {managed: {replicas: 3}}, " +
		"cacheServer: {etcd: {managed: {replicas: 1}}}, shards: [{name: alpha}]}\n"
	together := func(w *world) []string { return slices.Sorted(runtest.Filter(w.Runtime.Calls(), "ReplaceOutdated")) }
	inWorld(t, spec, func(t *testing.T, w *world) {
		w.MustRun(t)
		require.Empty(t, together(w))
		w.Runtime.OtherRun(w.lost())
		w.Up.Options.ReplaceAuthorities = true
		boom := errors.New("the run is interrupted")
		w.Runtime.On("Apply etcd/root", func() error { return boom })
		_, err := w.Run(t)
		require.ErrorContains(t, err, boom.Error())
		require.Empty(t, together(w), "its StatefulSet is the previous one")

		w.Up.Options.ReplaceAuthorities = false
		w.Runtime.On("Apply etcd/root", func() error { return nil })
		w.Runtime.On("ReplaceOutdated etcd/root", func() error { return boom })
		_, err = w.Run(t)
		require.ErrorContains(t, err, boom.Error())
		w.Runtime.On("ReplaceOutdated etcd/root", func() error { return nil })
		w.MustRun(t)
		require.Equal(t, []string{"ReplaceOutdated etcd/alpha", "ReplaceOutdated etcd/root"}, together(w))
		require.Contains(t, w.Notes(),
			"etcd/root: all members restart together, because their certificate authority was replaced")

		w.Up.Options.Renew = func(pki.Cert) bool { return true }
		require.Positive(t, w.MustRun(t).PKI.Renewed())
		require.Empty(t, together(w), "it was replaced everywhere")
		w.Up.Options.Renew = nil
		rotate, _, _ := w.rotation(pki.RotationOf(topology.EtcdCA))
		w.Runtime.Forget()
		_, err = rotate.Run(t.Context())
		require.NoError(t, err)
		require.NoError(t, rotate.Finish(t.Context()))
		require.Empty(t, together(w), "in a rotation, members trust each other")
	})
}

// Only up --replace-authorities can replace a client CA whose private key is lost: kcpctl calls kcp with certificates of
// that CA.
func TestLostKeyOfTheClientCA(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		w.MustRun(t)
		keyless := *w.Runtime.PKI()
		keyless.CAs = maps.Clone(keyless.CAs)
		lost := keyless.CAs[topology.ClientCA]
		lost.Key = nil
		keyless.CAs[topology.ClientCA] = lost
		w.Runtime.OtherRun(&keyless)
		w.Up.Options.ReplaceAuthorities = true
		require.Equal(t, []topology.CA{topology.ClientCA}, w.MustRun(t).PKI.CAs)
		w.Up.Options.ReplaceAuthorities = false
		require.True(t, w.MustRun(t).Plan.Empty())
		known, err := w.Runtime.Record(t.Context())
		require.NoError(t, err)
		require.Empty(t, known.LostKeys(w.Runtime.PKI()))
	})
}
