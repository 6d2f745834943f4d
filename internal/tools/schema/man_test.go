package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd"
)

// Each command has a man page with each flag that users see, and lines that begin with a dot are macros of man(7).
func TestManPages(t *testing.T) {
	files, err := releaseFiles(cmd.Commands(), edition{"v0.1.0", "2026-11-27"})
	require.NoError(t, err)
	macro := regexp.MustCompile(`^\.(TH|SH|SS|TP|IP|PP|EX|EE|br)( |\n)`)
	documented := append([]*cobra.Command{cmd.Commands()}, allCommands(cmd.Commands())...)
	require.Greater(t, len(documented), 50)
	for _, c := range documented {
		text := uncompressed(t, files["man/"+manName(c)+".1.gz"])
		require.Contains(t, text, `"2026-11-27" "kcpctl v0.1.0"`)
		require.Contains(t, text, "\n.SH NAME\n"+roff(manName(c))+` \- `)
		for line := range strings.Lines(text) {
			require.True(t, line[0] != '\'' && line[0] != '.' || macro.MatchString(line), "%s: %s", c.CommandPath(), line)
		}
		visit := func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" {
				require.Regexp(t, `(?m)^\\fB(\\-., )?\\-\\-`+regexp.QuoteMeta(roff(f.Name))+`[\[ \\]`, text, c.CommandPath())
			}
		}
		c.LocalFlags().VisitAll(visit)
		c.InheritedFlags().VisitAll(visit)
	}
	for _, name := range []string{"kcpctl.bash", "kcpctl.fish", "kcpctl.ps1", "_kcpctl"} {
		require.Contains(t, string(files["completions/"+name]), "__complete", name)
	}
	require.Len(t, files, len(documented)+4)
}

func TestManPage(t *testing.T) {
	root := &cobra.Command{Use: "kcpctl"}
	root.PersistentFlags().Bool("plain", false, "print as if to a file")
	c := &cobra.Command{Use: "add NAME", Short: "Add a shard", Run: func(*cobra.Command, []string) {}, Example: "  kcpctl add 'a'\n  .x",
		Long: "First.\n.dot \\n\n\n  as\n    it is"}
	c.Flags().StringP("file", "f", "kcp.yaml", "setup file, or - for stdin")
	root.AddCommand(c)
	require.Equal(t, `.TH "KCPCTL-ADD" 1 "2026-11-27" "kcpctl v0.1.0" "kcpctl manual"
.SH NAME
kcpctl\-add \- Add a shard
.SH SYNOPSIS
\fBkcpctl add NAME [flags]\fR
.SH DESCRIPTION
First.
\&.dot \en
.PP
.EX
  as
    it is
.EE
.SH OPTIONS
.TP
\fB\-f, \-\-file string\fR
setup file, or \- for stdin (default kcp.yaml)
.SS Flags of all commands
.TP
\fB\-\-plain\fR
print as if to a file
.SH EXAMPLES
.EX
kcpctl add \(aqa\(aq
\&.x
.EE
.SH SEE ALSO
\fBkcpctl\fR(1),
https://github.com/kcpctl/kcpctl/tree/main/docs
`, string(manPage(c, edition{"v0.1.0", "2026-11-27"})))
}

// Two runs write the same bytes.
func TestRelease(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	require.NoError(t, release(one, edition{"v0.1.0", "2026-11-27"}))
	require.NoError(t, release(two, edition{"v0.1.0", "2026-11-27"}))
	for _, name := range []string{"man/kcpctl.1.gz", "man/kcpctl-certs-list.1.gz", "completions/_kcpctl"} {
		a, err := os.ReadFile(filepath.Join(one, name))
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(two, name))
		require.NoError(t, err)
		require.Equal(t, a, b, name)
	}
}

func uncompressed(t *testing.T, data []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}
