package ui

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMerge(t *testing.T) {
	logs := func() []io.Reader {
		return []io.Reader{
			strings.NewReader("2026-11-27T06:00:01Z a1\n2026-11-27T06:00:01Z   more of a1\n2026-11-27T06:00:03.5Z a3\nno time"),
			strings.NewReader(""),
			strings.NewReader("[pod/b/kcp] 2026-11-27T06:00:02Z b2\n[pod/b/side] 2026-11-27T06:00:04Z b4\n"),
		}
	}
	prefixes := []string{"[a] ", "[e] ", "[b] "}
	var out bytes.Buffer
	require.NoError(t, Merge(&out, prefixes, logs(), false))
	require.Equal(t, "[a] a1\n[a]   more of a1\n[b] [pod/b/kcp] b2\n[a] a3\n[a] no time\n[b] [pod/b/side] b4\n", out.String())
	out.Reset()
	require.NoError(t, Merge(&out, prefixes, logs(), true))
	require.Contains(t, out.String(), "[a] 2026-11-27T06:00:01Z a1\n")
	require.Contains(t, out.String(), "[b] [pod/b/kcp] 2026-11-27T06:00:02Z b2\n[a] 2026-11-27T06:00:03.5Z a3\n")
}

func TestPrefixes(t *testing.T) {
	names := []string{"root-shard", "shard/a", "b", "c", "d", "e"}
	pipe, _, _ := Fake("", 0, 0)
	require.Equal(t, []string{"[root-shard] ", "[shard/a]    ", "[b]          "}, pipe.Out.Prefixes(names)[:3])
	terminal, _, _ := Fake("", 80, 24)
	got := terminal.Out.Prefixes(names)
	require.Equal(t, "\x1b[36m[root-shard]\x1b[0m ", got[0])
	require.Equal(t, "\x1b[32m[shard/a]\x1b[0m    ", got[1])
	require.Equal(t, "\x1b[36m[e]\x1b[0m          ", got[5], "five colours are all")
	plain, _, _ := Fake("", 80, 24, "NO_COLOR=1")
	require.Equal(t, "[shard/a]    ", plain.Out.Prefixes(names)[1])
}
