package local

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestLocalLife types the page that users start with. Before the page removes what it has made, the same kcp goes through
// the rest of its life cycle. That data survives is for TestClusterLife, and on this machine for TestLocalInterrupted.
func TestLocalLife(t *testing.T) {
	p := framework.NewLocalTypist(t, "sharded", "demo")
	p.Instead["make demo"] = framework.MakeDemo
	p.Before["make demo"] = func(t *testing.T) { require.NoError(t, os.Remove(p.File)) } // the page writes it
	p.Before["$EDITOR kcp.yaml"] = func(t *testing.T) { p.Edit(t, "  - name: beta\n", "  - name: beta\n  - name: gamma\n") }
	p.Before["bin/kcpctl down --local -f examples/sharded.yaml"] = func(t *testing.T) {
		framework.Lives(t, p.Setup, framework.Serves(), framework.Restarts())
	}
	p.Varies = []string{`into \S+config\.`, "into FILE.", `\d+ logical clusters?`, "N logical clusters"}
	p.Types(t, "docs/quickstart.md", "local")
	require.Empty(t, p.Left(t.Context(), t))
}
