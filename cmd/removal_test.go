package cmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const withAlpha = topologytest.Header + "spec: {shards: [{name: alpha}]}\n"

// applied brings a setup up, and returns its runtime and a file with another text.
func applied(t *testing.T, text, next string) (*fakeruntime.Runtime, string) {
	t.Helper()
	top := topologytest.Build(t, text)
	rt := fakeruntime.New(t, top)
	_, err := (&deploy.Up{
		Topology: top, Runtime: rt, Setup: []byte("the setup"), Observe: func(run.Event) {}, Now: time.Now,
		Network: fakeruntime.Network{},
	}).Run(t.Context())
	require.NoError(t, err)
	rt.Forget()
	path := filepath.Join(t.TempDir(), "kcp.yaml")
	require.NoError(t, os.WriteFile(path, []byte(next), 0o600))
	return rt, path
}

// typed runs a command as a user types it.
func typed(t *testing.T, rt *fakeruntime.Runtime, path, line string) (out, errs string, err error) {
	t.Helper()
	env, stdout, stderr := fakeEnv()
	openAs(env, rt)
	root := newRootCmd(env)
	root.SetArgs(append(strings.Fields(line), "-f", path))
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// A component that does not become ready ends up at the time limit that the user gives.
func TestTimeoutOfUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, path := applied(t, withAlpha, withAlpha)
		late := slices.Repeat([]ready.State{{Replicas: 1, Reason: "0/1 ready"}}, 3000) // looks
		rt.States("root-shard", append(late, ready.State{Ready: true, Replicas: 1, ReadyReplicas: 1})...)
		began := time.Now()
		_, _, err := typed(t, rt, path, "up --timeout 7m")
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		require.ErrorContains(t, err, "timed out after 7m0s")
		require.Equal(t, 7*time.Minute, time.Since(began))
	})
}

// Up refuses to delete a shard that is no longer in the file. Diff shows that in every format.
func TestDiffShowsWhatUpRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, path := applied(t, withAlpha, topologytest.Header)
		out, _, err := typed(t, rt, path, "diff")
		require.Equal(t, clierr.Failed, clierr.Code(err))
		require.Contains(t, out, "- Deployment/kcp/demo-shard-alpha")
		require.Regexp(t, `\n! up refuses this: shard/alpha holds workspaces \(.*\), and is no longer in the setup\n    hint: add it to spec.shards again .*kcpctl remove-shard alpha`, out)
		require.Regexp(t, `\n\n0 create, 0 change, [1-9]\d* delete, \d+ unchanged\n$`, out)

		out, _, err = typed(t, rt, path, "diff -o json")
		require.Equal(t, clierr.Failed, clierr.Code(err))
		var list differenceList
		require.NoError(t, json.Unmarshal([]byte(out), &list))
		require.Len(t, list.Refusals, 1)
		require.Equal(t, "shard/alpha", list.Refusals[0].Subject)
		require.Contains(t, list.Refusals[0].Message, "shard/alpha holds workspaces")
		require.Contains(t, list.Refusals[0].Hint, "kcpctl remove-shard alpha")

		out, _, err = typed(t, rt, path, "diff -o markdown")
		require.Equal(t, clierr.Failed, clierr.Code(err))
		require.Contains(t, out, "#### `kcpctl up` refuses this\n\n- shard/alpha holds workspaces")
		require.Contains(t, out, "| delete | `Deployment/kcp/demo-shard-alpha` | `shard/alpha` |")
		require.NotContains(t, out, "PRIVATE KEY")
		require.Empty(t, rt.Calls(), "it writes nothing")
	})
}

func TestDiffOfWhatUpAccepts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, path := applied(t, withAlpha, withAlpha)
		out, _, err := typed(t, rt, path, "diff")
		require.NoError(t, err)
		require.Empty(t, out)
		out, _, err = typed(t, rt, path, "diff -o markdown")
		require.NoError(t, err)
		require.Equal(t, "### kcp `demo`: no differences\n", out)
	})
}

// Commands that remove something validate, then ask. A dry run prints what would be removed, asks nothing and writes
// nothing.
func TestRemovals(t *testing.T) {
	held := clierr.New(clierr.Conflict, "wait until that run is done", "locked by another run")
	const noTerminal = "confirmation is required, but there is no terminal; use --yes"
	for line, tc := range map[string]struct {
		locked     bool
		out, fails string
	}{
		"down":                                       {fails: noTerminal},
		"down --purge":                               {locked: true, fails: "locked by another run"},
		"down --dry-run":                             {locked: true, out: `(?s)shard/alpha\n.*  - Deployment/kcp/demo-shard-alpha\n.*0 create, 0 change, [1-9]\d* delete, 0 unchanged\n$`},
		"down --dry-run=client":                      {out: `Deployment/kcp/demo-shard-alpha \(client dry run\)\n`},
		"certs renew --dry-run":                      {locked: true, out: `~ Secret/kcp/demo-shard-alpha-server\n`},
		"certs rotate-ca server --dry-run":           {locked: true, out: `(?s)~ .*[1-9]\d* change, 0 delete`},
		"certs rotate-ca server --finish":            {fails: ""},
		"certs rotate-service-account-key --dry-run": {locked: true, out: `(?s)~ .*[1-9]\d* change, 0 delete`},
	} {
		t.Run(line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, path := applied(t, withAlpha, withAlpha)
				if tc.locked {
					rt.On("Lock", func() error { return held })
				}
				before, err := os.ReadFile(path)
				require.NoError(t, err)
				out, _, err := typed(t, rt, path, line)
				if tc.fails != "" {
					require.ErrorContains(t, err, tc.fails)
				} else {
					require.NoError(t, err)
				}
				require.Regexp(t, tc.out, out)
				for _, call := range rt.Calls() {
					require.Contains(t, []string{"Lock", "Unlock", "Finish"}, call)
				}
				after, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, string(before), string(after))
			})
		})
	}
}

// An unfinished up is not an edit that is pending.
func TestRenewAfterAnUnfinishedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, path := applied(t, withAlpha, withAlpha)
		_, _, err := typed(t, rt, path, "certs renew --dry-run")
		require.NoError(t, err)
		rt.OtherRun(rt.PKI()) // which did not finish
		_, _, err = typed(t, rt, path, "certs renew")
		require.ErrorIs(t, err, deploy.ErrUnfinished)
		require.Contains(t, clierr.Hint(err), "run kcpctl up -f ")
		require.NotContains(t, err.Error(), "0 change")
	})
}

// The command of an interrupted run has the flags that it needs to continue.
func TestTheCommandThatContinues(t *testing.T) {
	for line, want := range map[string]string{
		"remove-shard alpha --drain --purge":     "kcpctl remove-shard alpha --drain",
		"remove-shard alpha --purge":             "kcpctl remove-shard alpha",
		"move root:a --to alpha --recursive":     "kcpctl move root:a --to alpha --recursive",
		"move root:a --concurrency 2 --to alpha": "kcpctl move root:a --to alpha",
	} {
		synctest.Test(t, func(t *testing.T) {
			rt, path := applied(t, withAlpha, withAlpha)
			env, _, _ := fakeEnv()
			openAs(env, rt)
			root := newRootCmd(env)
			root.SetArgs(append(strings.Fields(line), "--dry-run=client", "-f", path))
			require.NoError(t, root.ExecuteContext(t.Context()))
			require.Equal(t, want, env.Command)
			require.Equal(t, strings.TrimPrefix(want, "kcpctl "), completion(env.Command))
		})
	}
}
