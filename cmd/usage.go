package cmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/cmd/ui"
)

// flagGroup is the annotation with the title under which the help of a command lists a flag. Flags without it are about
// the command itself.
const flagGroup = "kcpctl.dev/group"

// The titles of groups of flags, in the order in which the help lists them.
const (
	GroupRisk       = "Accept a risk"
	GroupConnection = "Connection flags"
)

func flagGroups() []string { return []string{"", GroupRisk, GroupConnection} }

func annotate(f *pflag.FlagSet, key string, values []string, names ...string) {
	for _, name := range names {
		if err := f.SetAnnotation(name, key, values); err != nil {
			panic(err) // there is no such flag
		}
	}
}

func listUnder(f *pflag.FlagSet, title string, names ...string) {
	annotate(f, flagGroup, []string{title}, names...)
}

// FlagGroup returns the title under which the help lists a flag. It is empty for a flag about the command itself.
func FlagGroup(f *pflag.Flag) string { return strings.Join(f.Annotations[flagGroup], "") }

func inGroup(all *pflag.FlagSet, title string) *pflag.FlagSet {
	out := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if FlagGroup(f) == title {
			out.AddFlag(f)
		}
	})
	return out
}

// usageOf prints the usage of a command as cobra does, but the flags in groups, and without a usage line for commands
// that only hold others.
func usageOf(out *ui.Stream) func(*cobra.Command) error {
	return func(c *cobra.Command) error {
		var b strings.Builder
		b.WriteString("Usage:\n")
		if !c.HasAvailableSubCommands() || c.HasExample() { // it does something itself
			b.WriteString("  " + c.UseLine() + "\n")
		}
		if c.HasAvailableSubCommands() {
			b.WriteString("  " + c.CommandPath() + " [command]\n")
		}
		if c.HasExample() {
			fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
		}
		listCommands(&b, c)
		listFlags(&b, c, out)
		if c.HasHelpSubCommands() {
			b.WriteString("\nAdditional help topics:\n")
			for _, sub := range c.Commands() {
				if sub.IsAdditionalHelpTopicCommand() {
					fmt.Fprintf(&b, "  %-*s %s\n", sub.CommandPathPadding(), sub.CommandPath(), sub.Short)
				}
			}
		}
		if c.HasAvailableSubCommands() {
			fmt.Fprintf(&b, "\nUse \"%s [command] --help\" for more information about a command.\n", c.CommandPath())
		}
		_, err := io.WriteString(c.OutOrStderr(), b.String())
		return err
	}
}

// listCommands lists the commands that a command holds, under the titles of their groups.
func listCommands(b *strings.Builder, c *cobra.Command) {
	if !c.HasAvailableSubCommands() {
		return
	}
	groups := c.Groups()
	if len(groups) == 0 {
		groups = []*cobra.Group{{Title: "Available Commands:"}}
	}
	for _, g := range groups {
		fmt.Fprintf(b, "\n%s\n", g.Title)
		for _, sub := range c.Commands() {
			if sub.GroupID == g.ID && (sub.IsAvailableCommand() || sub.Name() == "help") {
				fmt.Fprintf(b, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
}

// listFlags lists the flags of a command in groups. On a terminal long lines are wrapped.
func listFlags(b *strings.Builder, c *cobra.Command, out *ui.Stream) {
	columns := 0
	if out.TTY {
		columns, _ = out.Size()
	}
	list := func(title string, f *pflag.FlagSet) {
		if f.HasAvailableFlags() {
			fmt.Fprintf(b, "\n%s:\n%s", title, f.FlagUsagesWrapped(columns))
		}
	}
	for _, title := range flagGroups() {
		if flags := inGroup(c.LocalFlags(), title); title == "" {
			list("Flags", flags)
		} else {
			list(title, flags)
		}
	}
	list("Global Flags", c.InheritedFlags())
}
