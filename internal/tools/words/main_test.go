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
		"docs/a.md":                      "# Title\n\nThe members serve Meanwhile.\nStrangers read it.\n",
		"docs/picture.svg":               "strangers\n",
		"pkg/b.go":                       "package b\n\n// ok looks what it is.\n",
		"pkg/testdata/c.txtar":           "stderr 'x is no value'\r\n",
		"pkg/testdata/d.yaml":            "# strangers\n",
		"dns/e.go":                       "// there is no record of ns.invalid nob" + "ody.invalid, and it is no longer needed\n",
		"other/d.md":                     "It stays all the same.\n",
		"internal/tools/words/f.go":      "// strangers\n",
		"test/testbed/build/x/README.md": "strangers\n",
		"Makefile":                       "# The former target.\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir)
	docs, pkg, other, makefile := `docs/a.md:4: "Strangers": `, []string{`pkg/b.go:3: "looks what": write "checks"`, `pkg/testdata/c.txtar:1: "is no value": `},
		`other/d.md:1: "all the same": write "anyway": It stays all the same.`, `Makefile:1: "former": write "previous"`
	for name, tc := range map[string]struct {
		paths []string
		want  []string
		err   string
	}{
		"two directories":      {[]string{"docs", "pkg"}, append([]string{docs}, pkg...), ""},
		"a file":               {[]string{"other/d.md"}, []string{other}, ""},
		"the whole repository": {[]string{"."}, []string{makefile, docs, other, pkg[0], pkg[1]}, ""},
		"allowed phrases":      {[]string{"dns"}, nil, ""},
		"no path":              {nil, nil, "usage: words PATH..."},
		"a typo":               {[]string{"doc"}, nil, "doc: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			found, err := search(&out, tc.paths)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, len(tc.want), found, out.String())
			for i, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
				if i < len(tc.want) {
					require.True(t, strings.HasPrefix(line, tc.want[i]), "%s\nwant %s", line, tc.want[i])
				}
			}
		})
	}
}
