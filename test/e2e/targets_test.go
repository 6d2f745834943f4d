package e2e

import (
	"go/build/constraint"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// makeTarget is a target of the Makefile that runs tests of this directory.
type makeTarget struct {
	tags []string
	run  string
}

// targets are e2e, which runs all tests of its tag, and those of the Makefile with an expression.
func targets(t *testing.T) map[string]makeTarget {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	all := map[string]makeTarget{"e2e": {tags: []string{"e2e"}}}
	for _, m := range regexp.MustCompile(`(?m)^(e2e-\S+): .*\n\tTAGS=(\S+) \./test/e2e/run\.sh -run '(.*)'$`).
		FindAllStringSubmatch(string(makefile), -1) {
		all[m[1]] = makeTarget{strings.Split(m[2], ","), strings.ReplaceAll(m[3], "$$", "$")}
	}
	require.Len(t, all, 3)
	return all
}

// Each test runs in a target, and each part of an expression selects a test.
func TestEveryTestHasATarget(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	matched := map[string]bool{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		first, _, _ := strings.Cut(string(raw), "\n")
		if !constraint.IsGoBuild(first) {
			continue
		}
		tags, err := constraint.Parse(first)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(raw), -1) {
			var in []string
			for name, to := range targets(t) {
				compiled := tags.Eval(func(tag string) bool { return strings.Contains(","+strings.Join(to.tags, ",")+",", ","+tag+",") })
				for _, part := range strings.Split(to.run, "|") {
					if compiled && regexp.MustCompile(part).MatchString(m[1]) {
						matched[name+part] = true
					}
				}
				if compiled && regexp.MustCompile(to.run).MatchString(m[1]) {
					in = append(in, name)
				}
			}
			require.NotEmpty(t, in, "%s in %s runs in no target of the Makefile", m[1], file)
		}
	}
	for name, to := range targets(t) {
		for _, part := range strings.Split(to.run, "|") {
			require.True(t, matched[name+part], "%s: no test matches %q", name, part)
		}
	}
}

// Each directory with tests of a tag is in a target of the Makefile with the tag.
func TestEveryTagHasATarget(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	run, err := os.ReadFile("run.sh")
	require.NoError(t, err)
	var lines []string
	for _, line := range strings.Split(string(makefile)+string(run), "\n") {
		if strings.Contains(line, "go test") && strings.Contains(line, "-tags") {
			lines = append(lines, strings.Replace(line, `"${TAGS:-e2e}"`, "e2e", 1))
		}
	}
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(string(raw), "\n")
		tag, _, _ := strings.Cut(strings.TrimPrefix(first, "//go:build "), " ")
		if !slices.Contains([]string{"integration", "e2e", "model"}, tag) {
			return nil
		}
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../")
		require.True(t, slices.ContainsFunc(lines, func(line string) bool {
			return strings.Contains(line, "-tags "+tag+" ") && slices.ContainsFunc(strings.Fields(line), func(word string) bool {
				at, below := strings.CutSuffix(strings.TrimPrefix(word, "./"), "/...")
				return at == dir || below && strings.HasPrefix(dir, at+"/")
			})
		}), "the tests with the tag %s in %s run in no target of the Makefile", tag, dir)
		return nil
	}))
}
