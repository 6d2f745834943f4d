package cmd

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// secretive has a secret in each field that can hold one.
const secretive = topologytest.Header + `spec:
  defaults:
    extraArgs: ["--tls-cipher-suites=MARKER-flag"]
    service: {metadata: {annotations: {vault: MARKER-service}}}
    podTemplate:
      metadata: {annotations: {vault: MARKER-annotation}}
      spec:
        containers:
        - name: kcp
          env: [{name: HTTPS_PROXY, value: "https://me:MARKER-proxy@proxy.example.com"}, {name: A, value: MARKER-variable}]
        - name: side
          image: side
          command: [sh, -c, "login MARKER-command"]
          args: ["--password", "MARKER-argument"]
        volumes: [{name: v, csi: {driver: d, volumeAttributes: {pass: MARKER-volume}}}]
  shards: # MARKER-comment
  - name: alpha
`

// bundleFiles reads a bundle.
func bundleFiles(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		require.NoError(t, err)
		require.Equal(t, int64(0o600), h.Mode)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		_, name, _ := strings.Cut(h.Name, "/")
		out[name] = string(text)
	}
}

// bundled is a kcp with secrets everywhere, and the directory of its setup file.
func bundled(t *testing.T) (rt *fakeruntime.Runtime, dir string) {
	t.Helper()
	dir = t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("kcp.yaml", secretive)
	write("secrets/tokens/tokens.csv", "MARKER-token,me,1\n")
	top := topologytest.Build(t, secretive)
	rt = fakeruntime.New(t, top)
	rt.Kcp.Always("GET /health", fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"health": "true"}})
	for _, path := range []string{
		"/clusters/root/api", "/clusters/root/apis/apis.kcp.io/v1alpha1/apiexportendpointslices",
		"/clusters/*/apis/apis.kcp.io/v1alpha1/apiexports",
	} {
		rt.Kcp.Always("GET "+path, fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not in this test"))
	}
	f, err := setup.Load(filepath.Join(dir, "kcp.yaml"), nil)
	require.NoError(t, err)
	applied, err := setup.Parse("earlier", []byte(strings.ReplaceAll(secretive, "MARKER-variable", "MARKER-earlier")))
	require.NoError(t, err)
	for _, s := range []*setup.File{applied, f} {
		text, err := setup.Marshal(s.Setup)
		require.NoError(t, err)
		_, err = (&deploy.Up{Topology: top, Runtime: rt, Setup: text, File: s.Data, Observe: func(run.Event) {}, Now: time.Now,
			Network: fakeruntime.Network{}}).Run(t.Context())
		require.NoError(t, err)
	}
	return rt, dir
}

// made adds an object that a component has made.
func made(rt *fakeruntime.Runtime, c *topology.Component, k kind.Kind, o map[string]any) {
	u := &unstructured.Unstructured{Object: o}
	u.SetGroupVersionKind(k.GroupVersionKind)
	u.SetNamespace("kcp")
	u.SetName("made")
	u.SetLabels(c.Selector())
	rt.Make(plan.Item{Ref: plan.RefOf(c.Cluster.Name, u), Component: c.ID(), Live: u})
}

func TestSupportBundleHasNoSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, dir := bundled(t)
		root := topologytest.Build(t, secretive).Root()
		secrets := []string{"MARKER"}
		said := "I said MARKER-variable MARKER-earlier MARKER-flag MARKER-argument MARKER-token MARKER-annotation MARKER-proxy\n" +
			"dial https://me:MARKER-url@etcd.example.com\nAuthorization: Bearer MARKER-bearer\n--client-secret=MARKER-client\n" +
			"token eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.MARKER\n"
		pki := rt.PKI()
		keys := [][]byte{pki.ServiceAccount.Key}
		for _, ca := range pki.CAs {
			keys = append(keys, ca.Key)
		}
		for _, leaf := range pki.Leaves {
			keys = append(keys, leaf.Key)
		}
		for _, key := range keys {
			lines := strings.Split(strings.TrimSpace(string(key)), "\n")
			secrets = append(secrets, lines[1])
			said += string(key) + "torn " + lines[1] + "\n"
		}
		rt.Log("root-shard", said)
		made(rt, root, kind.Pod, map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{"x": "MARKER-pod"}},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "kcp", "image": "ghcr.io/kcp-dev/kcp",
				"env": []any{map[string]any{"name": "A", "value": "MARKER-injected"}}, "args": []any{"--x=MARKER-pod-argument"}}}},
			"status": map[string]any{"phase": "Running"},
		})
		made(rt, root, kind.Event, map[string]any{"reason": "Failed", "message": "pull https://me:MARKER-event@registry failed"})

		env, out, errs := fakeEnv()
		openAs(env, rt)
		file := filepath.Join(t.TempDir(), "bundle.tar.gz")
		code := Main(t.Context(), []string{"support-bundle", "-f", filepath.Join(dir, "kcp.yaml"), "-o", file}, env)
		require.Equal(t, 0, code, errs.String())
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		got := bundleFiles(t, file)
		for name, text := range got {
			for _, secret := range secrets {
				require.NotContains(t, text, secret, name)
			}
		}
		require.NotContains(t, out.String()+errs.String(), "MARKER")
		require.Contains(t, out.String(), "Left out:\n  Secrets, private keys, tokens, kubeconfigs")
		for name, want := range map[string]string{
			"setup.yaml": "name: alpha", "applied.yaml": "name: alpha", "status.txt": "root-shard", "check.txt": "KCP1",
			"certificates.txt": "demo-root-server", "history.txt": "REVISION", "diff.txt": "unchanged",
			"components/root-shard/log.txt": "I said <redacted>", "components/root-shard/state.yaml": "ready: true",
			"components/root-shard/pods.yaml": "phase: Running", "events-default.txt": "Failed", "contents.txt": "Left out:",
			"version.txt": "kcpctl", "exit-codes.txt": "130  The command was interrupted",
		} {
			require.Contains(t, got[name], want, name)
		}
	})
}

func TestSupportBundleOfSomethingBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			breakIt func(*Env, *fakeruntime.Runtime)
			part    string
		}{
			"the cluster cannot be reached": {func(env *Env, _ *fakeruntime.Runtime) {
				env.Open = func(*topology.Topology, kube.Options) (run.Runtime, error) {
					return nil, errors.New("https://me:MARKER@api: connection refused")
				}
			}, "components/root-shard/state.yaml"},
			"the history cannot be read": {func(_ *Env, rt *fakeruntime.Runtime) {
				rt.On("History", func() error { return errors.New("connection refused") })
			}, "history.txt"},
		} {
			rt, dir := bundled(t)
			env, out, errs := fakeEnv()
			openAs(env, rt)
			tc.breakIt(env, rt)
			file := filepath.Join(t.TempDir(), "bundle.tar.gz")
			code := Main(t.Context(), []string{"support-bundle", "-f", filepath.Join(dir, "kcp.yaml"), "-o", file}, env)
			require.Equal(t, 0, code, "%s: %s", name, errs)
			got := bundleFiles(t, file)
			require.Regexp(t, `(?m)^error: .*connection refused`, got[tc.part], name)
			require.Contains(t, got["setup.yaml"], "name: alpha", name)
			require.Regexp(t, path.Base(tc.part)+` .* error: .*connection refused`, out.String(), name)
			require.NotContains(t, out.String()+got[tc.part], "MARKER", name)
		}
	})
}

func TestSupportBundleIsCompleteOrDoesNotExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, dir := bundled(t)
		file := filepath.Join(dir, "bundle.tar.gz")
		args := []string{"support-bundle", "-f", filepath.Join(dir, "kcp.yaml"), "-o", file}
		env, _, errs := fakeEnv()
		openAs(env, rt)
		ctx, cancel := context.WithCancelCause(t.Context())
		rt.On("State shard/alpha", func() error {
			cancel(context.Canceled)
			return nil
		})
		require.Equal(t, clierr.Interrupted, Main(ctx, args, env), errs.String())
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, left, 2, "kcp.yaml and secrets, and no part of an archive: %v", left)

		require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
		require.Equal(t, clierr.BadInput, Main(t.Context(), args, env))
		require.Contains(t, errs.String(), "already exists")
		kept, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, "mine", string(kept))
	})
}
