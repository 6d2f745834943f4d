package cmd

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// This file writes the commands that users can run next: each begins as users start kcpctl, and has the flags that lead
// to the same setup, so that it can be pasted.

const (
	kcpctl = "kcpctl"
	// pluginFile is the file with which kubectl finds kcpctl, and plugin is what users then type.
	pluginFile = "kubectl-kcpctl"
	plugin     = "kubectl kcpctl"
)

// program is what users type to run kcpctl.
func (e *Env) program() string {
	if strings.TrimSuffix(filepath.Base(e.Program), ".exe") == pluginFile {
		return plugin
	}
	return kcpctl
}

// name makes a command and its texts have the name that users type.
func (e *Env) name(root *cobra.Command) {
	if e.program() == kcpctl {
		return
	}
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: e.program()}
	var rename func(*cobra.Command)
	rename = func(c *cobra.Command) {
		c.Long = e.typed(root, c.Long, nil)
		c.Example = e.typed(root, c.Example, nil)
		c.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = e.typed(root, f.Usage, nil) })
		for _, sub := range c.Commands() {
			rename(sub)
		}
	}
	rename(root)
}

// pathOf is the command as records and events have it, whatever users type.
func pathOf(c *cobra.Command) string {
	return kcpctl + strings.TrimPrefix(c.CommandPath(), c.Root().DisplayName())
}

// command is a kcpctl command for the same setup, for the user to run next.
func (f *setupFlags) command(name string) string {
	return cmp.Or(f.program, kcpctl) + " " + name + f.args(fileFlag(strings.Fields(name)[0]))
}

// fileFlag is the flag of a command that names the setup file: in some commands -f means something else.
func fileFlag(command string) string {
	if command == "logs" || command == "import" {
		return "--file"
	}
	return "-f"
}

// args are the flags that lead to the same setup again, each with a space before it.
func (f *setupFlags) args(file string) string {
	var b strings.Builder
	if f.local.enabled {
		b.WriteString(" --local")
	}
	for _, flag := range []struct{ name, value, byDefault string }{
		{file, f.file, defaultFile}, {"--kubeconfig", f.kubeconfig, ""}, {"--context", f.context, ""},
		{"-n", f.namespace, ""}, {"--as", f.as, ""}, {"--pki-dir", f.pkiDir, ""},
	} {
		if flag.value != flag.byDefault {
			b.WriteString(" " + flag.name + " " + quote(flag.value))
		}
	}
	for _, g := range f.asGroups {
		b.WriteString(" --as-group " + quote(g))
	}
	return b.String()
}

// nextSteps writes the commands in a text, such as a hint of a package that knows no flags, as command does. Before the
// setup is known, they get no flags.
func (e *Env) nextSteps(text string) string {
	if e.root == nil {
		return text
	}
	var setup *setupFlags
	if e.session != nil {
		setup = e.session.flags
	}
	return e.typed(e.root, text, setup)
}

// typed writes the commands in a text as users type them. Without flags of a setup, it adds none.
func (e *Env) typed(root *cobra.Command, text string, setup *setupFlags) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, kcpctl+" ")
		name, takesSetup := commandIn(root, rest)
		if found && name != "" && e.program() == plugin {
			before = strings.TrimSuffix(before, "kubectl ") + "kubectl "
		}
		b.WriteString(before)
		if !found {
			return b.String()
		}
		text = rest[len(name):]
		line := kcpctl + " " + name
		if setup != nil && takesSetup && !strings.HasPrefix(text, " --help") {
			args := setup.args(fileFlag(strings.Fields(name)[0]))
			if own, _, _ := strings.Cut(rest, kcpctl+" "); !strings.Contains(own, args) {
				line += args
			}
		}
		b.WriteString(line)
	}
}

// commandIn returns the command with which a text begins, with its flags and arguments, and whether it takes the flags
// of a setup.
func commandIn(root *cobra.Command, text string) (name string, takesSetup bool) {
	c := root
	end := 0
	before := ""
	for end < len(text) {
		rest := strings.TrimPrefix(text[end:], " ")
		word := strings.TrimRight(rest[:len(rest)-len(strings.TrimLeft(rest, wordCharacters))], ".:")
		i := slices.IndexFunc(c.Commands(), func(sub *cobra.Command) bool { return sub.Name() == word })
		if i >= 0 {
			c = c.Commands()[i]
		} else if c == root || !isArgument(c, before, word) && !isValue(c, before, word) {
			break
		}
		before = word
		end = len(text) - len(rest) + len(word)
	}
	return text[:end], c.Flags().Lookup("file") != nil && c.Flags().Lookup("local") != nil
}

// isArgument reports whether a word after a command is one of its flags or arguments, and not the next word of the
// sentence. A word after an argument that is not a plain word itself, such as NAME or shard/a, continues the sentence.
func isArgument(c *cobra.Command, before, word string) bool {
	const notInWords = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/{"
	switch {
	case word == "" || word == "--" || word == "--help":
		return false
	case strings.HasPrefix(word, "-") || strings.ContainsAny(word, notInWords):
		return true
	case strings.ContainsAny(before, notInWords):
		return false
	}
	usage, needsArguments := strings.CutPrefix(c.Use, c.Name()+" ")
	return needsArguments && usage[0] != '[' && !slices.Contains(afterCommands, word)
}

// isValue reports whether a word is the value of the flag before it.
func isValue(c *cobra.Command, flag, word string) bool {
	f := c.Flags().Lookup(strings.TrimPrefix(flag, "--"))
	return f != nil && strings.HasPrefix(flag, "--") && f.NoOptDefVal == "" && word != "" &&
		!slices.Contains(afterCommands, word)
}

// afterCommands are the words with which sentences go on after a command.
var afterCommands = []string{
	"afterwards", "again", "and", "completes", "first", "instead", "lists", "of", "or", "prints", "shows", "takes",
	"then", "to", "too", "when", "where", "which", "with",
}

// wordCharacters are the characters of commands, flags and arguments. Others end a command in a sentence.
const wordCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@=~{}"

// withNextSteps writes the commands in the hints of an error.
func (e *Env) withNextSteps(err error) error {
	clierr.EachHint(err, e.nextSteps)
	return err
}
