package cmd

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
)

// runnable are the commands that do something, without those of cobra.
func runnable() []*cobra.Command {
	return slices.DeleteFunc(all(docsRoot()), func(c *cobra.Command) bool {
		return c.HasSubCommands() && !c.HasExample() || !c.Runnable() || c.Name() == "help" || c.Parent().Name() == "completion"
	})
}

// Each command has an example, and its long help begins with what the command does, not with its name.
func TestHelpOfCommands(t *testing.T) {
	require.Greater(t, len(runnable()), 40)
	for _, c := range runnable() {
		require.NotEmpty(t, c.Example, "%s has no example", c.CommandPath())
		require.Contains(t, c.Example, c.CommandPath(), c.CommandPath())
		for _, text := range []string{c.Short, c.Long} {
			first, _, _ := strings.Cut(text, " ")
			if text != "" {
				require.NotRegexp(t, `[^s]s$`, first, "%s: begin with an imperative, such as List", c.CommandPath())
			}
		}
	}
}

// The flags that lead to a setup, and those that accept a risk, have their own groups in the help.
func TestFlagGroups(t *testing.T) {
	connection := []string{"as", "as-group", "base-port", "context", "file", "kcp-bin-dir", "kcp-url", "kubeconfig", "local",
		"namespace", "pki-dir"}
	risk := regexp.MustCompile("^(allow|orphan|forget-cluster|prune-data|replace-authorities)$")
	for _, c := range runnable() {
		if c.Flags().Lookup("pki-dir") == nil {
			continue // not about a setup
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			want := ""
			switch {
			case slices.Contains(connection, f.Name):
				want = GroupConnection
			case risk.MatchString(f.Name):
				want = GroupRisk
			}
			require.Equal(t, want, strings.Join(f.Annotations[flagGroup], ""), "--%s of %s", f.Name, c.CommandPath())
		})
	}
}

func TestUsage(t *testing.T) {
	help := func(width int, args ...string) string {
		streams, out, _ := ui.Fake("", width, 24)
		require.Equal(t, 0, Main(t.Context(), append(args, "--help"),
			&Env{Streams: streams, Now: time.Now, Getenv: func(string) string { return "" }}))
		return out.String()
	}
	up := help(0, "up")
	titles := regexp.MustCompile(`(?m)^[A-Z].*:$`).FindAllString(up, -1)
	require.Equal(t, []string{"Usage:", "Examples:", "Flags:", "Accept a risk:", "Connection flags:", "Global Flags:"}, titles)
	_, own, _ := strings.Cut(up, "\nFlags:\n")
	own, rest, _ := strings.Cut(own, "\nAccept a risk:\n")
	require.Contains(t, own, "--dry-run")
	require.NotContains(t, own, "--allow")
	require.Regexp(t, `--allow RISK +accept a RISK \(repeatable\):\n +data-change=COMPONENT +start it`, rest)
	for line := range strings.Lines(help(80, "up")) {
		require.LessOrEqual(t, len(strings.TrimRight(line, "\n")), 110, line) // examples and long texts are not wrapped
	}
	require.NotContains(t, help(0, "certs"), "kcpctl certs\n", "commands that only hold others have no usage line")
	require.Contains(t, help(0, "certs"), "  kcpctl certs [command]\n")
	require.Contains(t, help(0, "certs"), "\nAvailable Commands:\n")
	require.Contains(t, help(0), "\nAdditional help topics:\n  kcpctl exit-codes")
}

// Commands that start nothing on this machine, and do not show what up would start, have no flags for it. The variables
// and the entries of the configuration file for these flags do not disturb them.
func TestFlagsOfThisMachine(t *testing.T) {
	starts := []string{"up", "add-shard", "upgrade", "agent add", "cluster add", "certs renew", "certs rotate-ca",
		"certs rotate-service-account-key", "encryption rotate", "restore"}
	has := func(c *cobra.Command, flag string) bool { return c.Flags().Lookup(flag) != nil }
	for _, c := range runnable() {
		name := strings.TrimPrefix(c.CommandPath(), "kcpctl ")
		started := slices.Contains(starts, name)
		compared := started || name == "diff" || name == "check"
		require.Equal(t, compared, has(c, "kcp-bin-dir"), name)
		require.Equal(t, compared || name == "render", has(c, "base-port"), name)
		require.Equal(t, started || name == "download", has(c, "kcp-url"), name)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "kcpctl"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kcpctl", "config.yaml"), []byte("kcp-url: http://x\n"), 0o600))
	variables := map[string]string{"HOME": dir, "KCPCTL_KCP_BIN_DIR": "none", "KCPCTL_LOCAL": "true"}
	for _, args := range [][]string{{"init"}, {"graph"}, {"history"}, {"config", "view"}} {
		streams, _, errors := ui.Fake("", 0, 0)
		require.Equal(t, 0, Main(t.Context(), args, &Env{Streams: streams, Now: time.Now, Getenv: func(k string) string { return variables[k] }}),
			"%s: %s", args, errors)
	}
}

// -o names a file in commands that write one: the name of a format there is a mistake.
func TestOutputIsAFile(t *testing.T) {
	for _, args := range [][]string{{"kubeconfig", "admin", "-o", "yaml"}, {"kubeconfig", "-o", "jsonpath={.a}"},
		{"import", "-f", "x.yaml", "-o", "json"}} {
		streams, _, errors := ui.Fake("", 0, 0)
		require.Equal(t, 2, Main(t.Context(), args, &Env{Streams: streams, Now: time.Now, Getenv: func(string) string { return "" }}))
		require.Contains(t, errors.String(), "-o names the file to write")
	}
}
