//go:build e2e

package e2e

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// makeDemo is what make demo runs in the end. It also builds kcpctl and downloads kcp, which tests have.
const makeDemo = "bin/kcpctl up --local -f examples/sharded.yaml"

func TestPageQuickstart(t *testing.T) {
	onMachine(t)
	p := newLocalTypist(t, "sharded", "demo")
	p.instead["make demo"] = makeDemo
	p.before["make demo"] = func(t *testing.T) { require.NoError(t, os.Remove(p.file)) } // the page writes it
	p.before["$EDITOR kcp.yaml"] = func(t *testing.T) { p.edit(t, "  - name: beta\n", "  - name: beta\n  - name: gamma\n") }
	p.varies = []string{`into \S+config\.`, "into FILE.", `\d+ logical clusters?`, "N logical clusters"}
	p.types(t, "docs/quickstart.md", "local")
}
