package gobuild

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// module writes a Go module with a library and a program, and returns its directory.
func module(t *testing.T, library string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.com/m\n\ngo 1.26\n",
		"lib/lib.go":     "package lib\n\n" + library + "\n",
		"cmd/one/one.go": "package main\n\nimport \"example.com/m/lib\"\n\nfunc main() { lib.Hello() }\n",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return dir
}

func TestRunBuildsAndReports(t *testing.T) {
	dir := module(t, "func Hello() {}\n\nconst Unique = \""+t.TempDir()+"\"") // so that no cache has it
	var lines []string
	b := Build{
		Dir: dir, Args: []string{"-o", "out/", "./cmd/one"}, Interval: time.Millisecond,
		Report: func(line string) { lines = append(lines, line) },
	}
	require.NoError(t, b.Run(t.Context()))
	require.FileExists(t, filepath.Join(dir, "out", "one"))
	require.NotEmpty(t, lines)
	require.Contains(t, lines[len(lines)-1], " of 2 packages compiled, ")
}

func TestRunIsQuietWhileItIsShort(t *testing.T) {
	b := Build{Dir: module(t, "func Hello() {}"), Args: []string{"./..."}, Report: func(line string) { t.Error(line) }, Interval: time.Hour}
	require.NoError(t, b.Run(t.Context()))
}

func TestRunReturnsWhatTheCompilerPrinted(t *testing.T) {
	for name, tc := range map[string]struct {
		library, args string
		facts         []string
	}{
		"an undefined name": {"func Hello() { missing() }", "./cmd/one", []string{"lib/lib.go", "undefined: missing"}},
		"no such package":   {"func Hello() {}", "./cmd/two", []string{"cmd/two"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Build{Dir: module(t, tc.library), Args: []string{tc.args}, Report: func(string) {}}.Run(t.Context())
			for _, fact := range tc.facts {
				require.ErrorContains(t, err, fact)
			}
		})
	}
}

func TestState(t *testing.T) {
	out := t.TempDir()
	const took = 90 * time.Second
	s := &state{out: out}
	for _, line := range []string{
		"go: downloading k8s.io/api v0.37.2",
		"mkdir -p $WORK/b001/",
		"/usr/local/go/pkg/tool/linux_amd64/compile -o $WORK/b002/_pkg_.a -p example.com/m/lib",
		"/usr/local/go/pkg/tool/linux_amd64/compile -o $WORK/b001/_pkg_.a -p main",
		"/usr/local/go/pkg/tool/linux_amd64/link -o $WORK/b001/exe/a.out",
	} {
		require.Equal(t, !strings.HasPrefix(line, "mkdir"), s.countPlanned(line), line)
	}
	require.Equal(t, "1m30s: 1 modules downloaded, last k8s.io/api v0.37.2", s.line(took))
	s.startBuild()
	require.Equal(t, "1m30s: 0 of 2 packages compiled, 0 of 1 binaries linked", s.line(took))
	require.True(t, s.countBuilt("example.com/m/lib"))
	require.False(t, s.countBuilt("# example.com/m/lib"))
	require.False(t, s.countBuilt("lib/lib.go:3:5: undefined: missing"))
	require.Equal(t, "1m30s: 1 of 2 packages compiled, 0 of 1 binaries linked, last example.com/m/lib", s.line(took))
	require.True(t, s.countBuilt("example.com/m/cmd/one"))
	require.NoError(t, os.WriteFile(filepath.Join(out, "one"), nil, 0o755))
	require.Equal(t, "1m30s: 2 of 2 packages compiled, 1 of 1 binaries linked, last example.com/m/cmd/one", s.line(took))
}
