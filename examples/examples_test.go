package examples_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// quickstart is the example of make demo and of the first pages. Its setup has the name that they use.
const quickstart = "sharded"

// Names of examples are unique: users who try one after another get another setup each time, and do not change the one
// that runs.
func TestNamesOfExamplesAreUnique(t *testing.T) {
	for _, name := range examples.Names() {
		data, err := examples.Read(name)
		require.NoError(t, err)
		f, err := setup.Parse(name, data)
		require.NoError(t, err)
		want := name
		if name == quickstart {
			want = "demo"
		}
		require.Equal(t, want, f.Setup.Metadata.Name, name)
	}
}

// The page on production has the number of lines of each example that stands for a guide of kcp.
func TestLinesOfProductionExamples(t *testing.T) {
	page, err := os.ReadFile("../docs/production.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| kcp-(\w+) \|.* (\d+) \|$`).FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, 4)
	for _, row := range rows {
		data, err := examples.Read(row[1])
		require.NoError(t, err)
		lines := 0
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				lines++
			}
		}
		require.Equal(t, row[2], strconv.Itoa(lines), row[1])
	}
}
