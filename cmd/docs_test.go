package cmd

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/pages"
)

// inSentences matches code in a sentence.
var inSentences = regexp.MustCompile("`([^`\n]+)`")

// told returns what users are told to type, by where: commands in blocks and in sentences of the pages, and in the
// examples of the help.
func told(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	blocks, err := pages.All("..")
	require.NoError(t, err)
	for _, b := range blocks {
		for _, c := range b.Commands {
			out[b.String()] = append(out[b.String()], c.Text)
		}
	}
	names, err := pages.Pages("..")
	require.NoError(t, err)
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		for _, m := range inSentences.FindAllStringSubmatch(string(text), -1) {
			out[name] = append(out[name], m[1])
		}
	}
	for _, c := range all(docsRoot()) {
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			out[c.CommandPath()] = append(out[c.CommandPath()], line)
		}
	}
	return out
}

// What the documents and the examples in the help tell users to type is understood: commands, flags, arguments. Other
// programs in blocks are those that users have.
func TestWhatUsersAreToldToType(t *testing.T) {
	others := map[string]bool{}
	for _, name := range []string{"kubectl", "make", "mkdir", "skopeo", "cat", "go", "$EDITOR", "curl", "sh", "ssh-keygen", "sha256sum"} {
		others[name] = false
	}
	commands := 0
	for where, lines := range told(t) {
		isBlock := strings.Contains(where, ".md:")
		for _, line := range lines {
			for _, words := range pages.Words(line) {
				name := words[0]
				if name == "kcpctl" || name == "bin/kcpctl" {
					commands++
					t.Run(where+": "+line, func(t *testing.T) { require.NoError(t, understand(words[1:])) })
					if name = runs(words); name == "" {
						continue
					}
				} else if !isBlock {
					continue
				}
				require.Contains(t, others, name, "%s: %s", where, line)
				others[name] = others[name] || isBlock
			}
		}
	}
	require.Greater(t, commands, 200)
	for name, used := range others {
		require.True(t, used, "no page uses %s", name)
	}
}

// runs returns the program that a command of kcpctl starts: the first word after --.
func runs(words []string) string {
	if i := slices.Index(words, "--"); i >= 0 && i+1 < len(words) {
		return words[i+1]
	}
	return ""
}

// No command that users are told to type writes over what it reads: the shell empties the file before the command starts.
func TestNoCommandWritesOverItsInput(t *testing.T) {
	for line, want := range map[string]string{
		"kcpctl history --revision 3 > kcp.yaml":          "kcp.yaml",
		"kcpctl config view >kcp.yaml":                    "kcp.yaml",
		"kcpctl config view -f eu.yaml > eu.yaml":         "eu.yaml",
		"kcpctl import -f crs.yaml >> crs.yaml":           "crs.yaml",
		"cat kcp.yaml | sed s/a/b/ > kcp.yaml":            "kcp.yaml",
		"kcpctl history --revision 3 > previous.yaml":     "",
		"kcpctl config view -f eu.yaml > kcp.yaml":        "",
		"kcpctl render --secrets=false > objects.yaml":    "",
		"kcpctl history --revision 3 --write":             "",
		"kcpctl config view --file=us.yaml 2>&1 >us.yaml": "us.yaml",
	} {
		require.Equal(t, want, overwritten(line), line)
	}
	for where, lines := range told(t) {
		for _, line := range lines {
			require.Empty(t, overwritten(line), "%s: %s", where, line)
		}
	}
}

// overwritten returns the file to which a command writes although it reads it.
func overwritten(line string) string {
	line, _, _ = strings.Cut(line, " #")
	for _, m := range regexp.MustCompile(`\s>>?\s*([\w./-]+)`).FindAllStringSubmatchIndex(line, -1) {
		target, before := line[m[2]:m[3]], strings.FieldsFunc(line[:m[0]], func(r rune) bool { return strings.ContainsRune(" =|<", r) })
		if slices.Contains(before, target) || target == defaultFile && readsDefault(before) {
			return target
		}
	}
	return ""
}

// readsDefault reports whether a command reads the setup file without its name.
func readsDefault(words []string) bool {
	if len(words) == 0 || words[0] != "kcpctl" && words[0] != "bin/kcpctl" {
		return false
	}
	c, rest, err := docsRoot().Find(words[1:])
	if err != nil || c.Flags().Lookup("file") == nil || c.Flags().Lookup("file").DefValue != defaultFile {
		return false
	}
	return !slices.ContainsFunc(rest, func(w string) bool { return w == "-f" || w == "--file" })
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

// The page names all commands that print events.
func TestCommandsWithEventsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/machines.md")
	require.NoError(t, err)
	_, row, ok := strings.Cut(string(text), "| [`events`](schemas/events.json) | ")
	require.True(t, ok)
	row, _, _ = strings.Cut(row, ": see ")
	var have []string
	for _, c := range all(docsRoot()) {
		if f := c.Flags().Lookup("output"); f != nil && f.Annotations[reportsEvents] != nil {
			have = append(have, "`"+strings.TrimPrefix(c.CommandPath(), "kcpctl ")+"`")
		}
	}
	require.ElementsMatch(t, have, strings.Split(row, ", "))
}

// The page names all commands that ask before they change something, and all that have a dry run and do not ask.
func TestCommandsThatAskAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	line := func(title string) []string {
		_, line, ok := strings.Cut(string(text), title+":\n")
		require.True(t, ok, title)
		line, _, _ = strings.Cut(line, ".\n")
		return strings.Split(line, ", ")
	}
	var ask, begin []string
	for _, c := range all(docsRoot()) {
		name := "`" + strings.TrimPrefix(c.CommandPath(), "kcpctl ") + "`"
		switch {
		case c.Flags().Lookup("yes") != nil:
			ask = append(ask, name)
		case c.Flags().Lookup("dry-run") != nil:
			begin = append(begin, name)
		}
	}
	require.Equal(t, ask, line("they need `--yes`"))
	require.Equal(t, begin, line("have no `--yes`"))
}

// The help and the page give each exit code the same meaning.
func TestExitCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/machines.md")
	require.NoError(t, err)
	help := strings.Join(strings.Fields(newExitCodesTopic().Long), " ")
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (.+) \|$`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, rows, len(regexp.MustCompile(`(?m)^ +\d+  `).FindAllString(newExitCodesTopic().Long, -1)))
	for _, row := range rows {
		require.Contains(t, help, row[1]+" "+strings.ReplaceAll(row[2], "`", ""))
	}
}

// What a source may set is decided flag by flag. A flag that is new, or that means something else in a command, is
// typed.
func TestDangerousFlagsAreTyped(t *testing.T) {
	typed := regexp.MustCompile("^(allow|yes|purge.*|setup-id|drain|finish|force.*|output.*|user|group|workspace|target|cluster-role|merge|use|only|dry-run|offline|from|secrets|ignore-checks|skip-.*|foreground|context-name|expires-in)$")
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

// understand parses the arguments of kcpctl as kcpctl would.
func understand(words []string) error {
	c, rest, err := docsRoot().Find(words)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if err := c.ValidateFlagGroups(); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

// yamlBlock matches a block of YAML that does not begin with a comment.
var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(( *)[a-z][a-zA-Z]*:.*?)^```\n")

// parents are the fields above a part of a setup file that a page shows, by its indentation.
var parents = map[string]string{
	"":         "",
	"  ":       "spec:\n",
	"    ":     "spec:\n  workloads:\n",
	"        ": "spec:\n  workloads:\n    clusters:\n    - name: c1\n      tenancy:\n",
}

// needsMore matches errors about what a part of a setup file does not show.
var needsMore = regexp.MustCompile(`required|not found|does not exist|there is no|in PEM format`)

// Each part of a setup file that a page shows has fields and values that kcpctl reads, and is rendered if it is complete.
func TestPartsOfSetupFiles(t *testing.T) {
	names, err := pages.Pages("..")
	require.NoError(t, err)
	parts, rendered, mounts := 0, 0, 0
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		for _, m := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
			above, known := parents[m[2]]
			require.True(t, known, "%s: %s", name, m[1])
			part := above + m[1]
			if !strings.HasPrefix(part, "spec:") {
				continue
			}
			parts++
			f, err := setup.Parse(name, []byte("apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\n"+part))
			for _, p := range clierr.Problems(err) {
				require.Regexp(t, needsMore, p.Message, "%s: %s", name, part)
			}
			if err == nil {
				rendered++
				mounts += kmsMounts(t, f.Setup, name+": "+part)
			}
		}
	}
	require.Greater(t, parts, 15)
	require.Greater(t, rendered, 15)
	require.Equal(t, 2, mounts)
}

// kmsMounts renders a setup, and returns how many components mount the socket of its KMS: the shards.
func kmsMounts(t *testing.T, s *v1alpha1.Setup, where string) (mounts int) {
	t.Helper()
	top := topology.Build(s)
	res, err := pki.Ensure(top, &pki.State{}, pki.Options{Now: at()})
	require.NoError(t, err, where)
	objects, err := render.Objects(top, res.State)
	require.NoError(t, err, where)
	for _, o := range objects {
		all, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		require.NoError(t, err, where)
		for _, c := range all {
			require.NotEmpty(t, c.(map[string]any)["image"], "%s: an overlay for another container", where)
		}
		if s.Spec.Encryption == nil || s.Spec.Encryption.KMS == nil || len(all) == 0 {
			continue
		}
		socket := path.Dir(strings.TrimPrefix(s.Spec.Encryption.KMS.Endpoint, "unix://"))
		isMounted := strings.Contains(fmt.Sprint(all), "mountPath:"+socket+" ")
		require.Equal(t, top.Component(o.Component).Kind.IsShard(), isMounted, "%s: %s", where, o.GetName())
		if isMounted {
			mounts++
		}
	}
	return mounts
}
