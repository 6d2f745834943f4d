package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSearch(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"docs/a.md":            "# Title\n\nThe members serve Meanwhile.\nNobody reads it.\n",
		"docs/picture.svg":     "nobody\n",
		"pkg/b.go":             "package b\n\n// ok tells whether it is.\n",
		"pkg/testdata/c.txtar": "stderr 'x is no YAML'\r\n",
		"other/d.md":           "It is made anew.\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir)
	for name, tc := range map[string]struct {
		paths []string
		want  string
		err   string
	}{
		"two folders": {[]string{"docs", "pkg"}, "docs/a.md:4:Nobody reads it.\npkg/b.go:3:// ok tells whether it is.\npkg/testdata/c.txtar:1:stderr 'x is no YAML'\n", ""},
		"a file":      {[]string{"other/d.md"}, "other/d.md:1:It is made anew.\n", ""},
		"no path":     {nil, "", "usage: words PATH..."},
		"a typo":      {[]string{"doc"}, "", "doc: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			found, err := search(&out, tc.paths)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, out.String())
			require.Equal(t, strings.Count(tc.want, "\n"), found)
		})
	}
}
