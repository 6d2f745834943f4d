package render_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// encryptionOf returns the configuration of the shards, with names instead of keys.
func encryptionOf(t *testing.T, top *topology.Topology, s *pki.State) string {
	t.Helper()
	objects, err := render.Objects(top, s)
	require.NoError(t, err)
	i := slices.IndexFunc(objects, func(o render.Object) bool { return o.GetName() == "demo-encryption" })
	flags := 0
	for _, name := range []string{"demo-root", "demo-shard-alpha", "demo-front-proxy-main"} {
		if slices.Contains(argsOf(t, objects, name), "--encryption-provider-config=/etc/kcp/encryption/config.yaml") {
			flags++
		}
	}
	if i < 0 {
		require.Zero(t, flags)
		return ""
	}
	require.Equal(t, 2, flags, "both shards")
	encoded, _, err := unstructured.NestedString(objects[i].Object, "data", "config.key")
	require.NoError(t, err)
	text, err := base64.StdEncoding.DecodeString(encoded)
	require.NoError(t, err)
	out := strings.TrimPrefix(string(text), "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n")
	for name, key := range map[string]string{"current": s.Encryption.Key, "next": s.Encryption.Next, "previous": s.Encryption.Previous} {
		if key != "" {
			out = strings.ReplaceAll(out, "      - name: "+pki.EncryptionKeyName(key)+"\n        secret: "+key, "      - "+name)
		}
	}
	return out
}

// In each phase of the rotation, the first provider writes, and all of them read.
func TestEncryption(t *testing.T) {
	top := topologytest.Build(t, "spec: {encryption: {}, shards: [{name: alpha}]}")
	res, err := pki.Ensure(top, &pki.State{}, pki.Options{Now: testutil.Start()})
	require.NoError(t, err)
	s := res.State
	entry := func(first, second string) string {
		return "- providers:\n" + first + second + "  resources:\n  - secrets\n"
	}
	box := func(keys ...string) string {
		out := "  - secretbox:\n      keys:\n"
		for _, k := range keys {
			out += "      - " + k + "\n"
		}
		return out
	}
	const identity = "  - identity: {}\n"
	off := topologytest.Build(t, "spec: {shards: [{name: alpha}]}")
	require.Equal(t, entry(box("current"), identity), encryptionOf(t, top, s))
	require.Equal(t, entry(identity, box("current")), encryptionOf(t, off, s), "what is encrypted can still be read")
	for _, want := range []string{
		entry(box("current", "next"), identity), entry(box("current", "previous"), identity), entry(box("current"), identity),
	} {
		s, err = pki.EncryptionRotation{}.Advance(top, s, s.Encryption.Phase, testutil.Start())
		require.NoError(t, err)
		require.Equal(t, want, encryptionOf(t, top, s))
	}
	for range 3 {
		s, err = pki.EncryptionRotation{}.Advance(off, s, s.Encryption.Phase, testutil.Start())
		require.NoError(t, err)
	}
	require.Empty(t, encryptionOf(t, off, s))

	s.Encryption = pki.Encryption{Key: s.Encryption.Key, Phase: pki.PhaseDistribute}
	require.Equal(t, entry(identity, box("current")), encryptionOf(t, top, s), "it is not everywhere yet")
}

// Each resource has its own provider of a KMS, because their names are unique in a configuration.
func TestKMS(t *testing.T) {
	const spec = "spec: {encryption: {resources: [secrets, configmaps]%s}, shards: [{name: alpha}]}"
	res, err := pki.Ensure(topologytest.Build(t, fmt.Sprintf(spec, "")), &pki.State{}, pki.Options{Now: testutil.Start()})
	require.NoError(t, err)
	top := topologytest.Build(t, fmt.Sprintf(spec, ", kms: {endpoint: unix:///run/kms.sock}"))
	res, err = pki.Ensure(top, res.State, pki.Options{Now: testutil.Start()})
	require.NoError(t, err)
	var want strings.Builder
	for _, resource := range []string{"configmaps", "secrets"} {
		fmt.Fprintf(&want, "- providers:\n  - secretbox:\n      keys:\n      - current\n"+
			"  - kms:\n      apiVersion: v2\n      endpoint: unix:///run/kms.sock\n      name: %s.%s\n  - identity: {}\n"+
			"  resources:\n  - %s\n", pki.EncryptionKeyName(res.State.Encryption.Next), resource, resource)
	}
	require.Equal(t, want.String(), encryptionOf(t, top, res.State))
}

// What is rendered says which keys shards use: a PKI that has lost them gets them back, and renders the same again.
func TestEncryptionIsRecoveredFromWhatIsRendered(t *testing.T) {
	top := topologytest.Build(t, "spec: {encryption: {}, shards: [{name: alpha}]}")
	more := topologytest.Build(t, "spec: {encryption: {resources: [secrets, configmaps]}, shards: [{name: alpha}]}")
	off := topologytest.Build(t, "spec: {shards: [{name: alpha}]}")
	res, err := pki.Ensure(top, &pki.State{}, pki.Options{Now: testutil.Start()})
	require.NoError(t, err)
	a, secrets := res.State.Encryption.Key, []string{"secrets"}
	b := strings.Repeat("A", 43) + "="
	for name, tc := range map[string]struct {
		top  *topology.Topology
		have pki.Encryption
		want pki.Encryption
	}{
		"one key":             {top, pki.Encryption{Key: a, Resources: secrets}, pki.Encryption{Key: a, Resources: secrets}},
		"the first key":       {top, pki.Encryption{Key: a, Phase: pki.PhaseDistribute}, pki.Encryption{Key: a}},
		"it encrypts no more": {off, pki.Encryption{Key: a, Resources: secrets}, pki.Encryption{Key: a, Resources: secrets}},
		"a new key is distributed": {top, pki.Encryption{Key: a, Next: b, Resources: secrets, Phase: pki.PhaseDistribute},
			pki.Encryption{Key: a, Previous: b, Resources: secrets, Phase: pki.PhaseSwitch}},
		"a new key encrypts": {top, pki.Encryption{Key: b, Previous: a, Resources: secrets, Phase: pki.PhaseSwitch},
			pki.Encryption{Key: b, Previous: a, Resources: secrets, Phase: pki.PhaseSwitch}},
		"it will encrypt more": {more, pki.Encryption{Key: a, Next: b, Resources: secrets, Phase: pki.PhaseDistribute},
			pki.Encryption{Key: a, Next: b, Resources: secrets, Phase: pki.PhaseDistribute}},
	} {
		t.Run(name, func(t *testing.T) {
			s := *res.State
			s.Encryption = tc.have
			before := encryptionOf(t, tc.top, &s)
			objects, err := render.Objects(tc.top, &s)
			require.NoError(t, err)
			var used []pki.EncryptionInUse
			for _, o := range objects {
				if u := render.EncryptionIn(o.Unstructured); len(u.Keys) > 0 {
					require.Equal(t, "demo-encryption", o.GetName())
					require.Empty(t, tc.have.Missing(u))
					used = append(used, u)
				}
			}
			s.Encryption = pki.Encryption{}
			require.Len(t, s.Encryption.Missing(used[0]), len(tc.have.Keys()))
			recovered, err := pki.RecoverEncryption(tc.top, &s, used)
			require.NoError(t, err)
			require.Equal(t, tc.want, recovered.Encryption)
			named := strings.NewReplacer("next", "other", "previous", "other")
			require.Equal(t, named.Replace(before), named.Replace(encryptionOf(t, tc.top, recovered)))
		})
	}
}

// A KMS has its keys, and the PKI has the only copy of the text that their names are made of.
func TestKeysOfAKMSAreNotRecovered(t *testing.T) {
	top := topologytest.Build(t, "spec: {encryption: {kms: {endpoint: unix:///run/kms.sock}}, shards: [{name: alpha}]}")
	res, err := pki.Ensure(top, &pki.State{}, pki.Options{Now: testutil.Start()})
	require.NoError(t, err)
	objects, err := render.Objects(top, res.State)
	require.NoError(t, err)
	i := slices.IndexFunc(objects, func(o render.Object) bool { return o.GetName() == "demo-encryption" })
	used := render.EncryptionIn(objects[i].Unstructured)
	require.Empty(t, res.State.Encryption.Missing(used))
	_, err = pki.RecoverEncryption(top, &pki.State{}, []pki.EncryptionInUse{used})
	require.ErrorContains(t, err, "shards use key "+pki.EncryptionKeyName(res.State.Encryption.Key)+" of a KMS")
	same, err := pki.RecoverEncryption(top, res.State, []pki.EncryptionInUse{used})
	require.NoError(t, err)
	require.Equal(t, res.State.Encryption.Keys(), same.Encryption.Keys())
}
