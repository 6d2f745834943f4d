package cmd

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const twoMore = topologytest.Header + "spec: {shards: [{name: alpha}, {name: beta}]}\n"

// A dry run prints the moves and makes none. Without a terminal, the moves need --yes.
func TestMoveShowsMovesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, path := applied(t, twoMore, twoMore)
		m := rt.Kcp.ServeMoves(fakekcp.Cluster{Path: "root:a", Shard: "alpha"}, fakekcp.Cluster{Path: "root:a:b", Shard: "root"})
		const line = "move root:a --to beta --recursive "
		out, _, err := typed(t, rt, path, line+"--dry-run")
		require.NoError(t, err)
		require.Equal(t, "WORKSPACE   FROM    TO\nroot:a      alpha   beta\nroot:a:b    root    beta\n", out)
		out, _, err = typed(t, rt, path, line+"--dry-run=client")
		require.NoError(t, err)
		require.Equal(t, "workspace root:a to shard beta (client dry run)\n", out)
		out, _, err = typed(t, rt, path, line+"--dry-run -o json")
		require.NoError(t, err)
		require.Contains(t, out, `"table":[["WORKSPACE","FROM","TO"],["root:a","alpha","beta"],["root:a:b","root","beta"]]`)
		_, _, err = typed(t, rt, path, line)
		require.ErrorContains(t, err, "--yes")
		require.Empty(t, rt.Kcp.Requests("create apibindings"))

		_, _, err = typed(t, rt, path, line+"--yes")
		require.NoError(t, err)
		for _, name := range []string{"a-id", "a-b-id"} {
			_, on := m.On(name)
			require.Equal(t, []string{"beta"}, on)
		}
		_, errs, err := typed(t, rt, path, line)
		require.NoError(t, err, "nothing to confirm")
		require.Contains(t, errs, `note: the workspaces are on shard "beta".`)
	})
}

// Nothing moves, so nothing is asked. What would move a moment later was not confirmed.
func TestMoveOfNothingMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, path := applied(t, twoMore, twoMore)
		there := fakekcp.Cluster{Path: "root:a", Shard: "beta"}
		m := rt.Kcp.ServeMoves(there)
		rt.On("Lock", func() error {
			m = rt.Kcp.ServeMoves(there, fakekcp.Cluster{Path: "root:a:b", Shard: "alpha"})
			return nil
		})
		_, _, err := typed(t, rt, path, "move root:a --to beta --recursive")
		require.Equal(t, clierr.Conflict, clierr.Code(err))
		_, on := m.On("a-b-id")
		require.Equal(t, []string{"alpha"}, on)
	})
}

func TestRebalanceShowsMovesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, path := applied(t, twoMore, twoMore)
		var all []fakekcp.Cluster
		for _, name := range strings.Split("abcdef", "") {
			all = append(all, fakekcp.Cluster{Path: "root:" + name, Shard: "alpha"})
		}
		rt.Kcp.ServeMoves(all...)
		out, _, err := typed(t, rt, path, "rebalance --dry-run --max-moves 2")
		require.NoError(t, err)
		require.Equal(t, "WORKSPACE   FROM    TO\nroot:a      alpha   beta\nroot:c      alpha   root\n", out)
		_, _, err = typed(t, rt, path, "rebalance --yes")
		require.NoError(t, err)
		_, errs, err := typed(t, rt, path, "rebalance --dry-run")
		require.NoError(t, err)
		require.Contains(t, errs, "nothing moves: the shards are balanced")
	})
}

func TestMovesRefuseFlags(t *testing.T) {
	rt, path := applied(t, twoMore, twoMore)
	for line, want := range map[string]string{
		"move": "a workspace is required", "move root:a": "--to is required",
		"move root:a --to bta":                  `there is no shard "bta"`,
		"move root:a --to beta --dry-run=none1": `invalid dry run "none1"`,
		"move root:a --to beta --concurrency 0": `invalid number "0"`,
		"rebalance --within 101":                "invalid percentage 101 of --within",
		"rebalance --max-moves -1":              "negative --max-moves -1",
		"rebalance root:a":                      `unexpected argument "root:a"`,
	} {
		_, _, err := typed(t, rt, path, line)
		require.ErrorContains(t, err, want)
		require.Equal(t, clierr.BadInput, clierr.Code(err))
	}
}
