package main

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/cmd"
)

const commandsHeader = `<!-- Generated from the help of the commands by internal/tools/schema: run make generate. -->

# Commands

All commands and their flags, as ` + "`--help`" + ` prints them. [Exit codes](machines.md#exit-codes) and
[defaults for flags](operations.md#defaults-for-flags) are the same for all commands.

| command | |
|---|---|
`

const flagsHeader = "\n| flag | default | |\n|---|---|---|\n"

// commands returns the reference of all commands.
func commands(root *cobra.Command) []byte {
	r := &commandReference{shared: map[string]string{}}
	r.out.WriteString(commandsHeader)
	documented := allCommands(root)
	for _, c := range documented {
		fmt.Fprintf(&r.out, "| [%s](#%s) | %s |\n", c.CommandPath(), anchor(c.CommandPath()), escape(c.Short))
	}
	r.sharedFlags(root, documented)
	group := ""
	for _, c := range documented {
		if id := groupOf(c); id != group {
			group = id
			fmt.Fprintf(&r.out, "\n## %s\n", group)
		}
		r.command(c)
	}
	return r.out.Bytes()
}

type commandReference struct {
	out bytes.Buffer
	// shared are the rows of flags that lead to a setup, by name. Most commands have the same ones.
	shared map[string]string
}

// allCommands returns the commands that users type, in the order of the help. Those of a shell have only one text.
func allCommands(c *cobra.Command) (out []*cobra.Command) {
	for _, sub := range subcommands(c) {
		out = append(out, sub)
		if sub.Name() != "completion" {
			out = append(out, allCommands(sub)...)
		}
	}
	return out
}

// subcommands returns the commands of a command that users type, in the order of the help.
func subcommands(c *cobra.Command) (out []*cobra.Command) {
	for _, g := range append(c.Groups(), &cobra.Group{}) {
		for _, sub := range c.Commands() {
			if sub.GroupID == g.ID && sub.IsAvailableCommand() && sub.Name() != "help" {
				out = append(out, sub)
			}
		}
	}
	return out
}

// groupOf returns the group of a command, or of the command that holds it.
func groupOf(c *cobra.Command) string {
	for c.GroupID == "" && c.HasParent() {
		c = c.Parent()
	}
	return c.GroupID
}

// sharedFlags writes the flags of all commands, and those that lead to a setup.
func (r *commandReference) sharedFlags(root *cobra.Command, all []*cobra.Command) {
	r.out.WriteString("\n## Flags of many commands\n\nAll commands have these flags:\n" + flagsHeader)
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { r.out.WriteString(row(f)) })
	fmt.Fprintf(&r.out, "\n### %s\n\n%s\n%s", cmd.GroupConnection,
		"These flags say which setup a command is about, and how to reach it. The reference of each command names those that it has.",
		flagsHeader)
	for _, c := range all {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if cmd.FlagGroup(f) == cmd.GroupConnection && r.shared[f.Name] == "" {
				r.shared[f.Name] = row(f)
				r.out.WriteString(row(f))
			}
		})
	}
}

func (r *commandReference) command(c *cobra.Command) {
	fmt.Fprintf(&r.out, "\n### %s\n\n%s", c.CommandPath(), prose(cmp.Or(c.Long, c.Short+".")))
	if c.HasExample() || !c.HasAvailableSubCommands() {
		fmt.Fprintf(&r.out, "\n```text\n%s\n```\n", c.UseLine())
	}
	if c.HasExample() {
		r.out.WriteString("\nExamples:\n\n```bash\n")
		for line := range strings.Lines(c.Example) {
			r.out.WriteString(strings.TrimPrefix(line, "  "))
		}
		r.out.WriteString("\n```\n")
	}
	r.flags(c)
}

// flags writes the flags of a command by their groups. It only names those that many commands share.
func (r *commandReference) flags(c *cobra.Command) {
	var own, risk, shared strings.Builder
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch group := cmd.FlagGroup(f); {
		case f.Hidden || f.Name == "help":
		case group == cmd.GroupConnection && r.shared[f.Name] == row(f):
			fmt.Fprintf(&shared, " `--%s`", f.Name)
		case group == cmd.GroupRisk:
			risk.WriteString(row(f))
		default:
			own.WriteString(row(f))
		}
	})
	if own.Len() > 0 {
		r.out.WriteString(flagsHeader + own.String())
	}
	if risk.Len() > 0 {
		fmt.Fprintf(&r.out, "\n%s:\n%s%s", cmd.GroupRisk, flagsHeader, risk.String())
	}
	if shared.Len() > 0 {
		fmt.Fprintf(&r.out, "\n[%s](#connection-flags):%s\n", cmd.GroupConnection, shared.String())
	}
}

// valueInUsage is the beginning of a line in the description of a flag that lists its values.
var valueInUsage = regexp.MustCompile(`\n +(\S+) +`)

// row returns the row of a flag in a table.
func row(f *pflag.Flag) string {
	name, usage := nameOf(f)
	cell := strings.TrimSpace(prose(valueInUsage.ReplaceAllString(usage, "\f`$1`: ")))
	return fmt.Sprintf("| `%s` | %s | %s |\n", strings.ReplaceAll(name, "|", `\|`), escape(defaultOf(f)),
		strings.ReplaceAll(cell, "\f", "<br>"))
}

// nameOf returns a flag as the help shows it, such as "-f, --file string", and its description.
func nameOf(f *pflag.Flag) (name, usage string) {
	kind, usage := pflag.UnquoteUsage(f)
	name = "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	switch {
	case f.NoOptDefVal != "" && f.NoOptDefVal != "true":
		name += "[=" + cmp.Or(kind, f.NoOptDefVal) + "]"
	case kind != "":
		name += " " + kind
	}
	return name, usage
}

// defaultOf returns the default of a flag. It is empty for a zero value.
func defaultOf(f *pflag.Flag) string {
	if slices.Contains([]string{"false", "[]", "0", "0s"}, f.DefValue) {
		return ""
	}
	return f.DefValue
}

// flagInText is a flag in a text for users.
var flagInText = regexp.MustCompile(`(^|[\s(])(--?[a-z][a-z-]*(?:=[a-z]+)?)`)

// prose returns a text of the help as Markdown, with a newline at the end. Paragraphs with indented lines keep their lines.
func prose(text string) string {
	var out []string
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		if isIndented(paragraph) {
			out = append(out, "```text\n"+strings.TrimRight(paragraph, "\n")+"\n```")
			continue
		}
		paragraph = strings.NewReplacer("*", `\*`, "_", `\_`).Replace(escape(paragraph))
		out = append(out, flagInText.ReplaceAllString(paragraph, "$1`$2`"))
	}
	return strings.Join(out, "\n\n") + "\n"
}

// isIndented reports whether a line of a paragraph is indented.
func isIndented(paragraph string) bool {
	return strings.Contains("\n"+paragraph, "\n ") || strings.Contains("\n"+paragraph, "\n\t")
}

func anchor(heading string) string { return strings.ReplaceAll(heading, " ", "-") }
