package framework

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/testutil/pages"
)

// Each shell block of a page has a reason why no test types it, or exactly one test does: a run of the page.
func TestEveryBlockIsRun(t *testing.T) {
	blocks, err := pages.All(Root(t))
	require.NoError(t, err)
	type run struct{ page, name string }
	wanted := map[run][]pages.Block{}
	for _, b := range blocks {
		if b.Reason == "" {
			wanted[run{b.Page, b.Run}] = append(wanted[run{b.Page, b.Run}], b)
		}
	}
	files, err := filepath.Glob("../*_test.go")
	require.NoError(t, err)
	below, err := filepath.Glob("../*/*_test.go")
	require.NoError(t, err)
	integration, err := filepath.Glob("../../integration/*_test.go")
	require.NoError(t, err)
	typed := map[run]int{}
	var tests strings.Builder
	for _, file := range slices.Concat(files, below, integration) {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		tests.Write(raw)
		for _, m := range regexp.MustCompile(`\.Types\(t, "([^"]+)", "([^"]+)"\)`).FindAllStringSubmatch(string(raw), -1) {
			typed[run{m[1], m[2]}]++
		}
	}
	for _, b := range blocks {
		for _, test := range regexp.MustCompile(`\bTest\w+`).FindAllString(b.Reason, -1) {
			require.Contains(t, tests.String(), "func "+test+"(", "%v: there is no such test", b)
		}
	}
	for r, n := range typed {
		require.Equal(t, 1, n, "%v: more than one test types these commands", r)
		require.NotEmpty(t, wanted[r], "%v: the page has no block for this run", r)
	}
	for r, blocks := range wanted {
		require.NotZero(t, typed[r], "%v: no test types these commands: write one, or a comment <!-- not run: REASON --> above them: %v",
			r, blocks)
	}
}
