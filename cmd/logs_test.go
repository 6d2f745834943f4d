package cmd

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// The lines of several components are in the order of their times, whose are printed if asked for.
func TestLogsOfSeveralComponents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := bringUp(t)
		rt.Log("root-shard", "2026-11-27T06:00:01Z one\n2026-11-27T06:00:03Z three\n")
		rt.Log("front-proxy/main", "2026-11-27T06:00:02Z two\n")
		path := filepath.Join(t.TempDir(), "kcp.yaml")
		require.NoError(t, os.WriteFile(path, []byte(topologytest.Header), 0o600))
		logs := func(args ...string) string {
			env, out, errs := fakeEnv()
			openAs(env, rt)
			code := Main(t.Context(), append([]string{"logs", "--file", path, "root-shard", "front-proxy/main"}, args...), env)
			require.Zero(t, code, errs)
			return out.String()
		}
		require.Equal(t, "[root-shard]       one\n[front-proxy/main] two\n[root-shard]       three\n", logs())
		require.Contains(t, logs("--timestamps"), "[front-proxy/main] 2026-11-27T06:00:02Z two\n")
	})
}

// Status leaves what is on a terminal. --watch shows one status after another in the same place.
func TestStatusKeepsTheScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := bringUp(t)
		path := filepath.Join(t.TempDir(), "kcp.yaml")
		require.NoError(t, os.WriteFile(path, []byte(topologytest.Header), 0o600))
		streams, out, _ := ui.Fake("", 100, 40)
		env := &Env{Streams: streams, Getenv: func(string) string { return "" }}
		openAs(env, rt)
		Main(t.Context(), []string{"status", "-f", path}, env)
		require.Contains(t, out.String(), "kcp \x1b[1mdemo\x1b[0m")
		require.NotContains(t, out.String(), "\x1b[2J")
	})
}

// A command whose error comes from kcp that starts says what to do, with the flags of the command.
func TestHintsHaveTheFlagsOfTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := bringUp(t)
		path := filepath.Join(t.TempDir(), "kcp.yaml")
		require.NoError(t, os.WriteFile(path, []byte(topologytest.Header), 0o600))
		rt.On("History", func() error { return clierr.New(clierr.Failed, "run kcpctl up first", "boom") })
		env, _, errs := fakeEnv()
		openAs(env, rt)
		require.Equal(t, clierr.Failed, Main(t.Context(), []string{"history", "-f", path, "-n", "kcp"}, env))
		require.Equal(t, "kcpctl: boom\nhint: run kcpctl up -f "+path+" -n kcp first\n", errs.String())
	})
}
