package framework

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/testutil/pages"
)

// Typist types the commands of pages of the documentation in a shell, in a directory that has what a clone of the
// repository has, and compares what they print with the page.
type Typist struct {
	*Setup
	*shell
	// Dir is the working directory. It has the setup file kcp.yaml.
	Dir string
	// Instead has commands that are typed instead of commands of the page, with the reason at each.
	Instead map[string]string
	// Before has what happens before a command: what the page tells users to do in an editor, or what it is about.
	Before map[string]func(t *testing.T)
	// Varies are what differs from run to run only here: pairs of an expression and its replacement.
	Varies []string
}

// NewTypist starts the shell. Variables set the flags that say where kcp runs, as the pages advise.
func NewTypist(t *testing.T, s *Setup, env ...string) *Typist {
	t.Helper()
	p := &Typist{Setup: s, Dir: filepath.Dir(s.File), Instead: map[string]string{}, Before: map[string]func(*testing.T){}}
	require.NoError(t, os.Mkdir(filepath.Join(p.Dir, "bin"), 0o700))
	require.NoError(t, os.Symlink(Given(t, "E2E_KCPCTL"), filepath.Join(p.Dir, "bin", "kcpctl")))
	require.NoError(t, os.CopyFS(filepath.Join(p.Dir, "examples"), os.DirFS(filepath.Join(Root(t), "examples"))))
	t.Cleanup(func() { s.Write(t, s.Text) }) // a page may have moved or changed the file, and down needs it
	p.shell = startShell(t, p.Dir, append(append(s.Env, "HOME="+p.Dir, "PATH="+p.Dir+"/bin:"+os.Getenv("PATH"),
		"TERM=xterm", "LC_ALL=C.UTF-8", "EDITOR=true", "KCPCTL_COLOR=never", "KCPCTL_PLAIN=true"), env...))
	return p
}

// NewLocalTypist has kcp on this machine, from an example with the name that it has in pages.
func NewLocalTypist(t *testing.T, example, name string, env ...string) *Typist {
	t.Helper()
	s := newLocalNamed(t, example, name)
	return NewTypist(t, s, append([]string{
		"KUBECONFIG=" + filepath.Join(filepath.Dir(s.File), "kubeconfig"), // pages add contexts
		"KCPCTL_KCP_BIN_DIR=" + Given(t, "E2E_KCP_BIN_DIR"),
	}, env...)...)
}

// Types types all commands of a page that are for a run.
func (p *Typist) Types(t *testing.T, page, run string) {
	t.Helper()
	blocks, err := pages.All(Root(t))
	require.NoError(t, err)
	for _, b := range blocks {
		if b.Page == page && b.Run == run {
			Step(t, b.String(), func(t *testing.T) {
				for _, c := range b.Commands {
					p.enter(t, c)
				}
			})
		}
	}
}

// enter types a command of a page.
func (p *Typist) enter(t *testing.T, c pages.Command) {
	t.Helper()
	if do := p.Before[c.Text]; do != nil {
		do(t)
	}
	text := cmp.Or(p.Instead[c.Text], c.Text)
	began := time.Now()
	r := p.typed(t, text)
	t.Logf("%4.1fs: %s", time.Since(began).Seconds(), text)
	require.Equal(t, c.Fails, r.Code != 0, "exit code %d of %s\n%s", r.Code, text, r.Stdout)
	if c.Fails {
		t.Log(r.Stdout)
	}
	if len(c.Output) > 0 {
		require.NoError(t, pages.Compare(c.Output, r.Stdout, p.Varies...), text)
	}
}
