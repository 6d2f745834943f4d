package install

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// program stands for kcpctl in archives.
const program = "#!/bin/sh\necho installed from an archive\n"

func TestInstall(t *testing.T) {
	mirror := Mirror(t, program)
	for _, shell := range []string{"dash", "bash", "busybox"} {
		t.Run(shell, func(t *testing.T) {
			in := newInstaller(t, shell, mirror)
			t.Run("newest", in.installsTheNewest)
			t.Run("v0.1.0", func(t *testing.T) { in.usesDirectory(t, "--version", "v0.1.0") })
			t.Run("0.1.0", func(t *testing.T) { in.usesDirectory(t, "--version", "0.1.0") })
			for version, want := range map[string]string{
				"v0.0.9": "nothing is installed", "v0.0.8": "could not be downloaded",
				"v0.0.7": "has no archive for " + runtime.GOOS, "v0.0.6": "checksums.txt could not be downloaded",
			} {
				t.Run(version, func(t *testing.T) { in.fails(t, 1, want, "--version", version) })
			}
			t.Run("no value", func(t *testing.T) { in.fails(t, 2, "usage:", "--version") })
			t.Run("unknown flag", func(t *testing.T) { in.fails(t, 2, "usage:", "--force", "now") })
			t.Run("half of the script", in.runsNothingOfHalfAScript)
		})
	}
}

// installer runs install.sh with a shell and a mirror of the releases.
type installer struct {
	shell  []string
	env    []string
	script string
}

func newInstaller(t *testing.T, shell, mirror string) installer {
	t.Helper()
	program, err := exec.LookPath(shell)
	if err != nil && runtime.GOOS != "linux" {
		t.Skipf("%s is not installed", shell)
	}
	require.NoError(t, err, "make deps installs the shells")
	script, err := filepath.Abs("../../install.sh")
	require.NoError(t, err)
	in := installer{shell: []string{program}, env: os.Environ(), script: script}
	if shell == "busybox" { // all programs are those of BusyBox, as on Alpine: there is no curl
		bin := t.TempDir()
		out, err := exec.Command(program, "--install", "-s", bin).CombinedOutput()
		require.NoError(t, err, string(out))
		in.shell = []string{filepath.Join(bin, "sh")}
		in.env = append(in.env, "PATH="+bin)
	}
	in.env = append(in.env, "KCPCTL_RELEASES="+mirror, "no_proxy=127.0.0.1")
	return in
}

func (in installer) run(dir string, args ...string) (string, error) {
	c := exec.Command(in.shell[0], append(append(in.shell[1:], in.script), args...)...)
	c.Env = append(in.env, "HOME="+dir)
	c.Dir = dir
	out, err := c.CombinedOutput()
	return string(out), err
}

func (in installer) installsTheNewest(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, ".local", "bin")
	for range 2 { // the second time over the first
		out, err := in.run(dir)
		require.NoError(t, err, out)
		t.Log(out)
		require.Contains(t, out, bin+" is not in PATH")
		hasPrograms(t, bin)
	}
}

func (in installer) usesDirectory(t *testing.T, args ...string) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "b i n")
	in.env = append(in.env, "PATH="+bin+":"+pathOf(in.env))
	out, err := in.run(dir, append(args, "--dir", bin)...)
	require.NoError(t, err, out)
	require.NotContains(t, out, "PATH")
	hasPrograms(t, bin)
	require.NoDirExists(t, filepath.Join(dir, ".local"))
}

// runsNothingOfHalfAScript cuts the script, as a connection that ends does for curl | sh.
func (in installer) runsNothingOfHalfAScript(t *testing.T) {
	script, err := os.ReadFile(in.script)
	require.NoError(t, err)
	dir := t.TempDir()
	for _, end := range []string{"\ttar -xzf", "\tmkdir -p", "main \"$@\""} {
		at := bytes.Index(script, []byte(end))
		require.Positive(t, at, end)
		c := exec.Command(in.shell[0], append(in.shell[1:], "-s")...)
		c.Env = append(in.env, "HOME="+dir)
		c.Stdin = bytes.NewReader(script[:at])
		out, _ := c.CombinedOutput()
		require.NotContains(t, string(out), "installed")
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, files)
	}
}

func (in installer) fails(t *testing.T, code int, want string, args ...string) {
	dir := t.TempDir()
	out, err := in.run(dir, args...)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, out)
	require.Equal(t, code, exit.ExitCode(), out)
	require.Contains(t, out, want)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

// hasPrograms checks the programs in a directory, and that there is nothing else.
func hasPrograms(t *testing.T, bin string) {
	t.Helper()
	var names []string
	files, err := os.ReadDir(bin)
	require.NoError(t, err)
	for _, f := range files {
		names = append(names, f.Name())
		said, err := exec.Command(filepath.Join(bin, f.Name())).Output()
		require.NoError(t, err)
		require.Equal(t, "installed from an archive\n", string(said))
	}
	require.Equal(t, []string{"kcpctl", "kubectl-kcpctl", "kubectl_complete-kcpctl"}, names)
	link, err := os.Readlink(filepath.Join(bin, "kubectl-kcpctl"))
	require.NoError(t, err)
	require.Equal(t, "kcpctl", link)
}

// pathOf returns PATH of an environment, in which the last value counts.
func pathOf(env []string) (path string) {
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			path = value
		}
	}
	return path
}
