package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/apiserver"
)

// TestPluginOfKubectl runs kcpctl as kubectl runs its plugins, and completes its arguments.
func TestPluginOfKubectl(t *testing.T) {
	apiserver.Need(t)
	dir, err := apiserver.Binaries(t.Context(), "kubectl")
	require.NoError(t, err)
	kubectl := filepath.Join(dir, "kubectl")
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "kcpctl"), "../..")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, os.Symlink("kcpctl", filepath.Join(bin, "kubectl-kcpctl")))
	script, err := os.ReadFile("../../tools/release/kubectl_complete-kcpctl")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "kubectl_complete-kcpctl"), script, 0o700))

	types := func(args ...string) string {
		c := exec.CommandContext(t.Context(), kubectl, args...)
		c.Dir = t.TempDir()
		c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, _ := c.CombinedOutput()
		t.Logf("kubectl %q\n%s", args, out)
		return string(out)
	}
	require.Contains(t, types("plugin", "list"), filepath.Join(bin, "kubectl-kcpctl"))
	require.Regexp(t, `^kcpctl +\S+\n`, types("kcpctl", "version"))
	require.Contains(t, types("kcpctl", "certs", "--help"), "  kubectl kcpctl certs [command]\n")
	require.Contains(t, types("kcpctl", "up"), "create one with kubectl kcpctl init")
	require.Contains(t, types("__complete", "kcpctl", ""), "\nup\t")
	require.Contains(t, types("__complete", "kcpctl", "certs", "rotate-"), "rotate-ca\t")
	require.Contains(t, types("__complete", "kcpctl", "status", "--outp"), "--output\t")
}
