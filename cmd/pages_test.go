package cmd

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/testutil/pages"
)

// The page shows what validate prints about the mistakes of several files.
func TestThePageAboutMistakes(t *testing.T) {
	const spec = "spec:\n  version: v0.32.3\n  etcd:\n    managed:\n      storage: 1Gi\n  frontProxies: [{name: main}]\n"
	blocks, err := pages.All("..")
	require.NoError(t, err)
	shown := 0
	t.Chdir(t.TempDir())
	write := func(name, more string) {
		text := "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata:\n  name: " + name + "\n" + spec + more
		require.NoError(t, os.WriteFile(name+".yaml", []byte(text), 0o600))
	}
	write("eu", "  shards: [{name: alpha}, {name: beta}]\n")
	write("us", "  rootShard:\n    extraArgs: [\"--bind-adress=1.2.3.4\"]\n")
	for _, b := range blocks {
		for _, c := range b.Commands {
			if c.Text != "kcpctl validate -f eu.yaml -f us.yaml" {
				continue
			}
			shown++
			streams, out, errs := ui.Fake("", 0, 0)
			Main(t.Context(), pages.Words(c.Text)[0][1:], &Env{Streams: streams, Now: at, Getenv: os.Getenv})
			require.NoError(t, pages.Compare(c.Output, out.String()+errs.String()))
		}
	}
	require.Equal(t, 1, shown)
}
