package cmd

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A table of revisions says which of them are not the whole setup.
func TestHistoryNamesComponents(t *testing.T) {
	streams, out, _ := ui.Fake("", 0, 0)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var history []plan.Revision
	for i, only := range [][]string{
		nil,
		{"base/eu", "shard/alpha", "etcd/alpha"},
		{"shard/a", "shard/b", "shard/c", "shard/d", "shard/e", "shard/f", "shard/g"},
		{"base/eu"},
	} {
		history = append(history, plan.Revision{Number: i + 1, Time: at.Add(time.Duration(i) * time.Hour), User: "ann@laptop", Version: "v1.2.0", Only: only})
	}
	printHistory(streams.Out, history)
	require.Equal(t, `REVISION   APPLIED                BY           KCPCTL   ONLY
4          2026-11-20T15:00:00Z   ann@laptop   v1.2.0   base/eu
3          2026-11-20T14:00:00Z   ann@laptop   v1.2.0   shard/a,shard/b,shard/c,shard/d,shard/e and 2 more
2          2026-11-20T13:00:00Z   ann@laptop   v1.2.0   shard/alpha,etcd/alpha
1          2026-11-20T12:00:00Z   ann@laptop   v1.2.0   -
`, out.String())
	require.Equal(t, []string{"base/eu", "shard/alpha", "etcd/alpha"}, history[1].Only)
}

// A revision is printed as its user wrote it; one of an earlier kcpctl, which kept no file, with all defaults.
func TestHistoryPrintsTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := bringUp(t)
		path := filepath.Join(t.TempDir(), "kcp.yaml")
		const text = "# mine\n" + topologytest.Header
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		f, err := setup.Load(path, nil)
		require.NoError(t, err)
		full, err := setup.Marshal(f.Setup)
		require.NoError(t, err)
		known, err := rt.Record(t.Context())
		require.NoError(t, err)
		for _, a := range []plan.Applied{
			{Setup: full, Only: []string{"root-shard"}}, {Setup: full, File: []byte(text)},
		} {
			require.NoError(t, rt.Finish(t.Context(), &plan.Plan{}, known, a))
		}
		for name, tc := range map[string]struct {
			args      []string
			want, err string
		}{
			"the file":                {[]string{"--revision", "3"}, text, ""},
			"with defaults":           {[]string{"--revision", "3", "--full"}, string(full), ""},
			"without a file":          {[]string{"--revision", "2"}, string(full), "note: the file of revision 2 was not kept"},
			"with defaults, no file":  {[]string{"--revision", "2", "--full"}, string(full), ""},
			"full without a revision": {[]string{"--full"}, "", "--full requires --revision"},
		} {
			env, out, errs := fakeEnv()
			openAs(env, rt)
			Main(t.Context(), append([]string{"history", "-f", path}, tc.args...), env)
			require.Equal(t, tc.want, out.String(), name)
			require.Contains(t, errs.String(), tc.err, name)
			if tc.err == "" {
				require.Empty(t, errs.String(), name)
			}
		}
	})
}
