package diff_test

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/desired/diff"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	o := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &o))
	return o
}

func TestObjects(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after string
		want          []diff.Change
	}{
		"same": {"{a: 1}", "{a: 1}", nil},
		"scalar": {"{spec: {replicas: 1}}", "{spec: {replicas: 2}}",
			[]diff.Change{{Path: "spec.replicas", Before: 1.0, After: 2.0}}},
		"added and removed": {"{a: {x: 1}}", "{a: {z: 1}}",
			[]diff.Change{{Path: "a.x", Before: 1.0}, {Path: "a.z", After: 1.0}}},
		"key with dots": {"{labels: {a.io/b: x}}", "{labels: {a.io/b: z}}",
			[]diff.Change{{Path: "labels[a.io/b]", Before: "x", After: "z"}}},
		"list by name": {"{containers: [{name: a, image: 1}, {name: kcp, image: 2}]}", "{containers: [{name: kcp, image: 3}, {name: a, image: 1}]}",
			[]diff.Change{{Path: "containers[kcp].image", Before: 2.0, After: 3.0}}},
		"arguments by flag": {"{args: [--v=2, --shard-name=alpha]}", "{args: [--shard-name=alpha, --v=4]}",
			[]diff.Change{{Path: "args[--v]", Before: "--v=2", After: "--v=4"}}},
		"other lists by position": {"{l: [x, u]}", "{l: [x, z, w]}",
			[]diff.Change{{Path: "l[1]", Before: "u", After: "z"}, {Path: "l[2]", After: "w"}}},
		"what the server keeps": {"{metadata: {resourceVersion: 1, generation: 1, uid: a, managedFields: [1]}, status: {ready: 1}}",
			"{metadata: {resourceVersion: 2, generation: 2}, status: {}}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, diff.Objects(object(t, tc.before), object(t, tc.after)))
		})
	}
}

func secret(cert, key []byte) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": "demo-root-server", "namespace": "kcp"},
		"data": map[string]any{
			"tls.crt": base64.StdEncoding.EncodeToString(cert), "tls.key": base64.StdEncoding.EncodeToString(key),
		},
	}}
}

func TestSecretsAreMasked(t *testing.T) {
	state := pkitest.Issue(t, topologytest.Build(t, ""), testutil.Start())
	var old pki.Pair
	for key, pair := range state.Leaves {
		if key.Secret == "demo-root-server" {
			old = pair
		}
	}
	require.NotEmpty(t, old.Key)
	fresh, err := pki.Mint(state, pki.MintSpec{CN: "new", Orgs: []string{"team"}, Algorithm: "ECDSA-P256", Validity: time.Hour}, testutil.Start())
	require.NoError(t, err)
	live, want := secret(old.Cert, old.Key), secret(fresh.Cert, fresh.Key)
	merged := want.DeepCopy()
	for _, o := range []*unstructured.Unstructured{live, merged} { // kubectl has applied both, and keeps a copy
		o.SetAnnotations(map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": string(toJSON(t, o)), "note": "of the user"})
	}
	p := &plan.Plan{Items: []plan.Item{
		{Ref: plan.RefOf("", live), Action: plan.Change, Live: live, Merged: merged, Want: want},
		{Ref: plan.RefOf("", live), Action: plan.Create, Want: want},
		{Ref: plan.RefOf("", live), Action: plan.Delete, Live: live},
	}}
	entries := diff.Entries(p, "demo", nil)
	require.Len(t, entries, 3)
	changes := entries[0].Changes
	require.Equal(t, "data[tls.crt]", changes[0].Path)
	require.Contains(t, changes[0].Before, "certificate demo-root, issued by demo-server-ca, expires 2027-11-20, for ")
	require.Equal(t, "certificate new (team), issued by demo-client-ca, expires 2026-11-20", changes[0].After)
	require.Equal(t, diff.Change{Path: "data[tls.key]", Before: "*** (before)", After: "*** (after)"}, changes[1])

	shown, err := json.Marshal(entries)
	require.NoError(t, err)
	for _, e := range entries {
		text, err := e.Unified()
		require.NoError(t, err)
		shown = append(shown, text...)
	}
	for _, pair := range []pki.Pair{old, fresh} {
		require.NotContains(t, string(shown), base64.StdEncoding.EncodeToString(pair.Key))
		require.NotContains(t, string(shown), "PRIVATE KEY")
	}
	require.Contains(t, string(shown), "note: of the user")
}

func toJSON(t *testing.T, o *unstructured.Unstructured) []byte {
	t.Helper()
	js, err := o.MarshalJSON()
	require.NoError(t, err)
	return js
}

func TestAdoptedAndDrift(t *testing.T) {
	live := &unstructured.Unstructured{Object: object(t, "{apiVersion: v1, kind: Service, metadata: {name: demo-root, namespace: kcp}, spec: {type: NodePort}}")}
	want := &unstructured.Unstructured{Object: object(t, "{apiVersion: v1, kind: Service, metadata: {name: demo-root, namespace: kcp}, spec: {type: ClusterIP}}")}
	ref := plan.RefOf("", live)
	conflict := plan.Conflict{Ref: ref, Object: ref.String(), Field: ".spec.type", Manager: "kubectl-edit"}
	entries := diff.Entries(&plan.Plan{Items: []plan.Item{
		{Ref: ref, Action: plan.Change, Live: live, Merged: want, Want: want},
		{Ref: ref, Action: plan.Unchanged, Live: live, Merged: live, Want: live},
	}}, "demo", []plan.Conflict{conflict})
	require.Len(t, entries, 1)
	require.True(t, entries[0].Adopted)
	require.Equal(t, []plan.Conflict{conflict}, entries[0].Drift)
	text, err := entries[0].Unified()
	require.NoError(t, err)
	require.Contains(t, text, "-  type: NodePort\n+  type: ClusterIP\n")
}
