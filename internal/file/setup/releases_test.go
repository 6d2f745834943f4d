package setup

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// releases has a directory for each release, with the examples that its kcpctl init writes.
const releases = "releases"

// Users keep the setup files with which they began: the examples of each release load and render without an error.
func TestExamplesOfEachReleaseStillWork(t *testing.T) {
	for _, path := range files(t, filepath.Join(releases, "*")) {
		t.Run(filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)), func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			top := topology.Build(parse(t, string(text)))
			res, err := pki.Ensure(top, &pki.State{}, pki.Options{Now: testutil.Start()})
			require.NoError(t, err)
			objects, err := render.Objects(top, res.State)
			require.NoError(t, err)
			require.NotEmpty(t, objects)
		})
	}
}

func TestEachReleaseHasItsExamples(t *testing.T) {
	changelog, err := os.ReadFile("../../../CHANGELOG.md")
	require.NoError(t, err)
	for _, release := range released(string(changelog)) {
		files(t, filepath.Join(releases, release))
	}
	require.Equal(t, []string{"0.2.0", "0.1.0"}, released("## [Unreleased]\n\n## [0.2.0] - 2027-01-31\n\n## [0.1.0]\n"))
}

// released returns the versions of a changelog.
func released(changelog string) []string {
	var out []string
	for _, heading := range regexp.MustCompile(`(?m)^## \[(\d[^\]]*)\]`).FindAllStringSubmatch(changelog, -1) {
		out = append(out, heading[1])
	}
	return out
}
