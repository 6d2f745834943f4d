package cmd

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/ui"
)

// What the documents and the examples in the help tell users to type is understood: commands, flags, arguments.
func TestWhatUsersAreToldToType(t *testing.T) {
	// Code in a sentence, and lines after a prompt.
	typed := regexp.MustCompile("`(?:bin/)?kcpctl ([^`]+)`|(?m:^\\$ (?:bin/)?kcpctl (.+)$)")
	files, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	told := map[string][]string{}
	for _, f := range append(files, "../README.md") {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range typed.FindAllStringSubmatch(string(text), -1) {
			told[f] = append(told[f], m[1]+m[2])
		}
	}
	require.Greater(t, len(told["../README.md"]), 5)
	for _, c := range all(docsRoot()) {
		for line := range strings.Lines(c.Example) {
			if line, ok := strings.CutPrefix(strings.TrimSpace(line), "kcpctl "); ok {
				told[c.CommandPath()] = append(told[c.CommandPath()], line)
			}
		}
	}
	for where, lines := range told {
		for _, line := range lines {
			t.Run(where+": "+line, func(t *testing.T) { require.NoError(t, understand(line)) })
		}
	}
}

// The documents name exactly the flags that variables and the configuration file set.
func TestDocumentedSources(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	row := func(title string) (flags []string) {
		_, line, ok := strings.Cut(string(text), "| "+title+" | ")
		require.True(t, ok, title)
		line, _, _ = strings.Cut(line, "\n")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
			flags = append(flags, m[1])
		}
		return flags
	}
	both := row("variables and the file")
	require.Equal(t, both, configFile.settable(docsRoot()))
	require.ElementsMatch(t, append(both, row("variables only")...), environment.settable(docsRoot()))
}

// What a source may set is decided flag by flag. A flag that is new, or that means something else in a command, is typed.
func TestDangerousFlagsAreTyped(t *testing.T) {
	typed := regexp.MustCompile("^(allow-.*|yes|purge.*|setup-id|drain|finish|force.*|output.*|user|group|workspace|target|cluster-role|merge|use|only|dry-run|offline|from|secrets|ignore-checks|skip-.*|foreground|context-name|expires-in)$")
	for _, from := range []source{environment, configFile} {
		for _, name := range from.settable(docsRoot()) {
			require.NotRegexp(t, typed, name)
		}
	}
}

func docsRoot() *cobra.Command {
	streams, _, _ := ui.Fake("", 0, 0)
	return newRootCmd(&Env{Streams: streams})
}

func all(c *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		out = append(out, all(sub)...)
	}
	return out
}

// understand parses a line as kcpctl would, up to where the shell continues with something else.
func understand(line string) error {
	line, _, _ = strings.Cut(line, "#")
	words := strings.Fields(strings.ReplaceAll(line, "'", ""))
	if end := slices.IndexFunc(words, func(w string) bool { return strings.ContainsAny(w, "|&><;") }); end >= 0 {
		words = words[:end]
	}
	c, rest, err := docsRoot().Find(words)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}
