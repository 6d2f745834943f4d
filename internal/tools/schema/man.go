package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/cmd"
)

// edition is what the first and the last line of a man page say about it.
type edition struct{ version, date string }

// inherited is the title of the flags that all commands have.
const inherited = "Flags of all commands"

// manName returns the name of the man page of a command, such as kcpctl-certs-list.
func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage returns the man page of a command, in the language of man(7).
func manPage(c *cobra.Command, e edition) []byte {
	m := &page{}
	fmt.Fprintf(m, ".TH %q 1 %q %q %q\n", strings.ToUpper(manName(c)), e.date, "kcpctl "+e.version, "kcpctl manual")
	fmt.Fprintf(m, ".SH NAME\n%s \\- %s\n", roff(manName(c)), roff(c.Short))
	synopsis := c.UseLine()
	if c.HasAvailableSubCommands() && !c.HasExample() {
		synopsis = c.CommandPath() + " COMMAND [flags]"
	}
	fmt.Fprintf(m, ".SH SYNOPSIS\n\\fB%s\\fR\n.SH DESCRIPTION\n", roff(synopsis))
	m.prose(cmp.Or(c.Long, c.Short+"."))
	m.commands(c)
	m.options(c)
	if c.HasExample() {
		m.WriteString(".SH EXAMPLES\n")
		m.lines(strings.TrimPrefix(strings.ReplaceAll(c.Example, "\n  ", "\n"), "  "))
	}
	m.WriteString(".SH SEE ALSO\n")
	if c.HasParent() {
		fmt.Fprintf(m, "\\fB%s\\fR(1),\n", roff(manName(c.Parent())))
	}
	m.WriteString(roff("https://github.com/kcpctl/kcpctl/tree/main/docs") + "\n")
	return m.Bytes()
}

type page struct{ bytes.Buffer }

// commands writes the direct subcommands, by the groups of the help. Each has a page.
func (m *page) commands(c *cobra.Command) {
	group := ""
	for i, sub := range subcommands(c) {
		if i == 0 {
			m.WriteString(".SH COMMANDS\n")
		}
		if sub.GroupID != group {
			group = sub.GroupID
			fmt.Fprintf(m, ".SS %s\n", roff(group))
		}
		fmt.Fprintf(m, ".TP\n\\fB%s\\fR\n%s\n", roff(sub.CommandPath()), roff(sub.Short))
	}
}

// options writes the flags by their groups.
func (m *page) options(c *cobra.Command) {
	groups := map[string][]*pflag.Flag{}
	add := func(group string, f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			groups[group] = append(groups[group], f)
		}
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { add(cmd.FlagGroup(f), f) })
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) { add(inherited, f) })
	m.WriteString(".SH OPTIONS\n")
	for _, group := range []string{"", cmd.GroupRisk, cmd.GroupConnection, inherited} {
		if group != "" && len(groups[group]) > 0 {
			fmt.Fprintf(m, ".SS %s\n", roff(group))
		}
		for _, f := range groups[group] {
			name, usage := nameOf(f)
			if value := defaultOf(f); value != "" {
				usage += fmt.Sprintf(" (default %s)", value)
			}
			fmt.Fprintf(m, ".TP\n\\fB%s\\fR\n%s\n", roff(name), strings.NewReplacer("\n\n", "\n.IP\n", "\n  ", "\n.br\n").Replace(roff(usage)))
		}
	}
}

// prose writes paragraphs. Those with indented lines keep their lines.
func (m *page) prose(text string) {
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			m.WriteString(".PP\n")
		}
		if isIndented(paragraph) {
			m.lines(paragraph)
			continue
		}
		m.WriteString(roff(paragraph) + "\n")
	}
}

// lines writes a text as it is.
func (m *page) lines(text string) {
	fmt.Fprintf(m, ".EX\n%s\n.EE\n", roff(strings.TrimRight(text, "\n")))
}

// roffEscapes are the characters that roff interprets, or prints as typographic ones.
var roffEscapes = strings.NewReplacer(
	`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`, `"`, `\(dq`, "\t", "    ")

// roff returns a text with which roff prints the same characters. A line that begins with a dot is a macro.
func roff(text string) string {
	text = roffEscapes.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return strings.ReplaceAll(text, "\n.", "\n\\&.")
}
