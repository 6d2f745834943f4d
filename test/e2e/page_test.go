//go:build e2e

package e2e

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/testutil/pages"
)

// typist types the commands of pages of the documentation in a shell, in a directory that has what a clone of the
// repository has, and compares what they print with the page.
type typist struct {
	*setup
	*shell
	// dir is the working directory. It has the setup file kcp.yaml.
	dir string
	// instead has commands that are typed instead of commands of the page, with the reason at each.
	instead map[string]string
	// before has what happens before a command: what the page tells users to do in an editor, or what it is about.
	before map[string]func(t *testing.T)
	// varies are what differs from run to run only here: pairs of an expression and its replacement.
	varies []string
}

// newTypist starts the shell. Variables set the flags that say where kcp runs, as the pages advise.
func newTypist(t *testing.T, s *setup, env ...string) *typist {
	t.Helper()
	p := &typist{setup: s, dir: filepath.Dir(s.file), instead: map[string]string{}, before: map[string]func(*testing.T){}}
	require.NoError(t, os.Mkdir(filepath.Join(p.dir, "bin"), 0o700))
	require.NoError(t, os.Symlink(given(t, "E2E_KCPCTL"), filepath.Join(p.dir, "bin", "kcpctl")))
	require.NoError(t, os.CopyFS(filepath.Join(p.dir, "examples"), os.DirFS("../../examples")))
	t.Cleanup(func() { s.write(t, s.text) }) // a page may have moved or changed the file, and down needs it
	p.shell = startShell(t, p.dir, append(append(s.env, "HOME="+p.dir, "PATH="+p.dir+"/bin:"+os.Getenv("PATH"),
		"TERM=xterm", "LC_ALL=C.UTF-8", "EDITOR=true", "KCPCTL_COLOR=never", "KCPCTL_PLAIN=true"), env...))
	return p
}

// newLocalTypist has kcp on this machine, from an example with the name that it has in pages.
func newLocalTypist(t *testing.T, example, name string, env ...string) *typist {
	t.Helper()
	s := newLocalNamed(t, example, name)
	return newTypist(t, s, append([]string{
		"KUBECONFIG=" + filepath.Join(filepath.Dir(s.file), "kubeconfig"), // pages add contexts
		"KCPCTL_KCP_BIN_DIR=" + given(t, "E2E_KCP_BIN_DIR"),
	}, env...)...)
}

// types types all commands of a page that are for a run.
func (p *typist) types(t *testing.T, page, run string) {
	t.Helper()
	blocks, err := pages.All("../..")
	require.NoError(t, err)
	for _, b := range blocks {
		if b.Page == page && b.Run == run {
			step(t, b.String(), func(t *testing.T) {
				for _, c := range b.Commands {
					p.enter(t, c)
				}
			})
		}
	}
}

// enter types a command of a page.
func (p *typist) enter(t *testing.T, c pages.Command) {
	t.Helper()
	if do := p.before[c.Text]; do != nil {
		do(t)
	}
	text := cmp.Or(p.instead[c.Text], c.Text)
	began := time.Now()
	r := p.typed(t, text)
	t.Logf("%4.1fs: %s", time.Since(began).Seconds(), text)
	require.Equal(t, c.Fails, r.code != 0, "exit code %d of %s\n%s", r.code, text, r.stdout)
	if c.Fails {
		t.Log(r.stdout)
	}
	if len(c.Output) > 0 {
		require.NoError(t, pages.Compare(c.Output, r.stdout, p.varies...), text)
	}
}
