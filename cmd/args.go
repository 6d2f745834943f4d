package cmd

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// noArgs accepts no arguments. Unlike cobra.NoArgs it fails with the exit code of bad input, as the other checks here.
func noArgs(c *cobra.Command, args []string) error { return maxArgs(0)(c, args) }

func maxArgs(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		if err := noFiles(c, args); err != nil {
			return err
		}
		return badArgs(c, "unexpected argument %q", args[n])
	}
}

// noFiles accepts any arguments but those that look like the setup file.
func noFiles(c *cobra.Command, args []string) error {
	for _, arg := range args {
		if hint := fileHint(c, arg); hint != "" {
			return clierr.New(clierr.BadInput, hint, "unexpected argument %q", arg)
		}
	}
	return nil
}

// fileHint returns the hint for an argument that looks like the setup file, or "". -f has other meanings in some
// commands.
func fileHint(c *cobra.Command, arg string) string {
	file := c.Flags().Lookup("file")
	if ext := filepath.Ext(arg); file == nil || ext != ".yaml" && ext != ".yml" {
		return ""
	}
	if other := c.Flags().ShorthandLookup("f"); other != nil && other != file {
		return fmt.Sprintf("-f is --%s here: name the setup file with --file %s", other.Name, quote(arg))
	}
	return fmt.Sprintf("name the setup file with -f %s", quote(arg))
}

func withArticle(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// newGroup returns a command that only groups others.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short}
	c.AddCommand(commands...)
	return c
}

// withoutArgs returns the function of a command without arguments.
func withoutArgs(run func(context.Context) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error { return run(c.Context()) }
}

// withArg returns the function of a command with one argument.
func withArg(arg *string, run func(context.Context) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		*arg = args[0]
		return run(c.Context())
	}
}

// withArgs returns the function of a command with any number of arguments.
func withArgs(all *[]string, run func(context.Context) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		*all = args
		return run(c.Context())
	}
}

// oneArg accepts exactly one argument, such as a shard name.
func oneArg(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return badArgs(c, "%s is required", withArticle(what))
		}
		return maxArgs(1)(c, args)
	}
}

// someArgs accepts one argument or more.
func someArgs(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return badArgs(c, "%s is required", withArticle(what))
		}
		return nil
	}
}

func badArgs(c *cobra.Command, format string, args ...any) error {
	return clierr.New(clierr.BadInput, "run "+c.CommandPath()+" --help", format, args...)
}

// shortName is the length of names from which two letters may be wrong.
const shortName = 4

// synonyms returns the words for a command of kcpctl that other tools have, or that are only a part of it.
func synonyms(command string) []string {
	return map[string][]string{
		"up":             {"apply", "install", "deploy", "create", "sync", "start", "run"},
		"down":           {"delete", "destroy", "uninstall", "remove", "rm", "stop", "teardown"},
		"diff":           {"plan", "preview"},
		"check":          {"doctor", "verify", "test", "health"},
		"validate":       {"lint"},
		"status":         {"get", "describe", "list", "ps", "ls", "shards", "events", "top"},
		"render":         {"template", "manifests"},
		"history":        {"rollback", "revisions"},
		"remove-shard":   {"delete-shard", "drain"},
		"add-shard":      {"add"},
		"upgrade":        {"update"},
		"certs":          {"rotate", "certificates", "certificate"},
		"certs renew":    {"renew"},
		"support-bundle": {"bugreport", "bug-report", "collect", "must-gather", "sos"},
		"import":         {"convert", "migrate"},
	}[command]
}

// knownCommand rejects the name of a subcommand that does not exist.
func knownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "run " + c.CommandPath() + " --help"
	c.SuggestionsMinimumDistance = 2
	if len(args[0]) < shortName {
		c.SuggestionsMinimumDistance = 1 // two letters of three are another word
	}
	similar := meant(c, args[0])
	if len(similar) == 0 { // a word of another tool is not a mistyped one
		similar = c.SuggestionsFor(args[0])
	}
	if len(similar) > 0 {
		hint = "did you mean " + c.CommandPath() + " " + either(similar) + "?"
	}
	return clierr.New(clierr.BadInput, hint, "unknown command %q for %s", args[0], c.CommandPath())
}

// meant returns the commands that a word of another tool means, such as certs renew.
func meant(c *cobra.Command, word string) (names []string) {
	for _, sub := range c.Commands() {
		if slices.Contains(synonyms(sub.Name()), word) {
			names = append(names, sub.Name())
		}
		for _, part := range sub.Commands() {
			if name := sub.Name() + " " + part.Name(); slices.Contains(synonyms(name), word) {
				names = append(names, name)
			}
		}
	}
	return names
}

// knownTopic rejects the name of a command that does not exist, as an argument of help.
func knownTopic(c *cobra.Command, args []string) error {
	topic, rest, err := c.Root().Find(args)
	if err != nil {
		return err
	}
	return knownCommand(topic, rest)
}
