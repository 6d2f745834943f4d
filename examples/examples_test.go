package examples_test

import (
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
