package cmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/ui"
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
