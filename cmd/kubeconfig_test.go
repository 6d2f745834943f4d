package cmd

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// -o replaces a kubeconfig that an earlier command has written, and no other one.
func TestKubeconfigReplacesOnlyItsOwn(t *testing.T) {
	rt := bringUp(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "kcp.yaml")
	require.NoError(t, os.WriteFile(file, []byte(topologytest.Header), 0o600))
	write := func(to string, args ...string) (int, string) {
		env, _, errs := fakeEnv()
		openAs(env, rt)
		code := Main(t.Context(), append([]string{"kubeconfig", "-f", file, "-o", to}, args...), env)
		return code, errs.String()
	}
	own := filepath.Join(dir, "own")
	for _, args := range [][]string{nil, {"--user", "ci"}, {"--user", "ci", "--workspace", "root:team-a"}, nil} {
		code, errs := write(own, args...)
		require.Equal(t, 0, code, errs)
	}

	theirs := filepath.Join(dir, "config")
	for text, want := range map[string]string{
		`{apiVersion: v1, kind: Config, clusters: [{name: prod, cluster: {server: "https://prod"}}], contexts: [{name: prod, context: {cluster: prod, user: me}}]}`: "has other contexts, which would be lost: prod",
		"a: [": "is not a kubeconfig",
	} {
		require.NoError(t, os.WriteFile(theirs, []byte(text), 0o600))
		code, errs := write(theirs)
		require.Equal(t, clierr.BadInput, code)
		require.Contains(t, errs, want)
		now, err := os.ReadFile(theirs)
		require.NoError(t, err)
		require.Equal(t, text, string(now))
	}
}

// A kubeconfig cannot be valid for longer than its authority.
func TestKubeconfigEndsWithTheCA(t *testing.T) {
	const text = topologytest.Header + "spec: {pki: {caValidity: 48h, certificateValidity: 24h}}\n"
	top := topologytest.Build(t, text)
	rt := fakeruntime.New(t, top)
	_, err := (&deploy.Up{
		Topology: top, Runtime: rt, Setup: []byte("the setup"), Observe: func(run.Event) {}, Now: time.Now, Network: fakeruntime.Network{},
	}).Run(t.Context())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "kcp.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	for lasts, noted := range map[string]bool{"24h": false, "72h": true} {
		env, out, errs := fakeEnv()
		openAs(env, rt)
		require.Equal(t, 0, Main(t.Context(), []string{"kubeconfig", "-f", file, "--user", "ci", "--expires-in", lasts}, env), errs.String())
		require.Contains(t, out.String(), "current-context: root")
		if noted {
			require.Contains(t, errs.String(), "when the client CA expires; to renew the CA, run kcpctl certs rotate-ca client -f "+file)
		} else {
			require.Empty(t, errs.String())
		}
	}
}
