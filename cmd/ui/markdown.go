package ui

import (
	"fmt"
	"html"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/diff"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// maxMarkdown is how many bytes a comment on a pull request may have, with a reserve: GitHub accepts 65536.
const maxMarkdown = 60000

// Difference is the result of a comparison.
type Difference struct {
	// Name is the name of the setup, Summary a line with the numbers of objects.
	Name, Summary string
	Entries       []diff.Entry
	// Refused is why up would refuse the change. Nil: it would not.
	Refused error
	// Unknown is why some of the differences are not known. Nil: all are.
	Unknown error
}

// PrintRefusals prints why up would refuse a change, each reason with its next step.
//
//	! up refuses this: shard/beta holds workspaces, and is no longer in the setup
//	    hint: ...
func PrintRefusals(s *Stream, refused error) {
	for _, g := range clierr.Groups(refused) {
		for _, m := range messages(g) {
			lines := strings.Split(m, "\n")
			fmt.Fprintf(s, "%s %s\n", s.Red("!"), s.Text("up refuses this: "+lines[0]))
			s.detail("  ", lines[1:])
		}
		s.hint("    ", g.Line())
	}
}

// PrintMarkdown prints a comparison as a comment on a pull request: what up refuses, a table of the objects, and what
// changes in each. What a comment has no space for is left out, and named.
func PrintMarkdown(s *Stream, d Difference) error {
	var b strings.Builder
	summary := d.Summary
	if len(d.Entries) == 0 && d.Unknown == nil {
		summary = "no differences"
	}
	fmt.Fprintf(&b, "### kcp %s: %s\n", code(d.Name), summary)
	if d.Refused != nil {
		b.WriteString("\n#### `kcpctl up` refuses this\n\n")
		for i, g := range clierr.Groups(d.Refused) {
			if i > 0 {
				b.WriteString("\n")
			}
			for _, m := range messages(g) {
				fmt.Fprintf(&b, "- %s\n", paragraph(s, m))
			}
			if g.Hint != "" {
				fmt.Fprintf(&b, "\n  Next step: %s\n", paragraph(s, g.Line()))
			}
		}
	}
	if d.Unknown != nil {
		fmt.Fprintf(&b, "\n#### Some differences are unknown\n\n%s\n", paragraph(s, d.Unknown.Error()))
	}
	if len(d.Entries) > 0 {
		b.WriteString("\n| action | object | component | paths |\n|---|---|---|---|\n")
		_ = cut(&b, d.Entries, maxMarkdown/2, "| | and %d more | | |\n", func(e diff.Entry) (string, error) {
			return fmt.Sprintf("| %s | %s | %s | %s |\n", action(e), cell(e.Object), cell(e.Component), paths(e)), nil
		})
	}
	err := cut(&b, d.Entries, maxMarkdown, "\nThe details of %d more objects are left out: `kcpctl diff` shows them.\n",
		s.details)
	fmt.Fprint(s, b.String())
	return err
}

// cut appends texts to a document up to a size, and then how many are left out.
func cut(b *strings.Builder, all []diff.Entry, size int, more string, text func(diff.Entry) (string, error)) error {
	for i, e := range all {
		t, err := text(e)
		if err != nil {
			return err
		}
		if b.Len()+len(t) > size {
			fmt.Fprintf(b, more, len(all)-i)
			return nil
		}
		b.WriteString(t)
	}
	return nil
}

// details returns the changes of an object, folded.
func (s *Stream) details(e diff.Entry) (string, error) {
	lines, err := changeLines(e)
	if err != nil {
		return "", err
	}
	fence := "```"
	for i := range lines {
		lines[i] = s.indented(lines[i])
		for strings.Contains(lines[i], fence) {
			fence += "`"
		}
	}
	return fmt.Sprintf("\n<details><summary>%s <code>%s</code></summary>\n\n%sdiff\n%s\n%s\n\n</details>\n", action(e),
		html.EscapeString(e.Object), fence, strings.Join(lines, "\n"), fence), nil
}

// changeLines are the lines of a diff: the paths of a change with their values, or the whole object.
func changeLines(e diff.Entry) ([]string, error) {
	if len(e.Changes)+len(e.Drift) == 0 {
		text, err := e.Unified()
		return strings.Split(strings.TrimRight(text, "\n"), "\n"), err
	}
	var out []string
	for _, c := range e.Changes {
		out = append(out, "  "+c.Path)
		if c.Before != nil {
			out = append(out, "-   "+plain(c.Before))
		}
		if c.After != nil {
			out = append(out, "+   "+plain(c.After))
		}
	}
	for _, d := range e.Drift {
		out = append(out, fmt.Sprintf("! drift: %s is set by %s", d.Field, d.Manager))
	}
	return out, nil
}

// indented is Text, but keeps the indent.
func (s *Stream) indented(line string) string {
	text := strings.TrimLeft(line, " ")
	return line[:len(line)-len(text)] + s.Text(text)
}

// action returns the action on an object, in a word.
func action(e diff.Entry) string {
	if e.Adopted {
		return "adopt"
	}
	return string(e.Action)
}

// paths is how many paths of an object differ.
func paths(e diff.Entry) string {
	if len(e.Changes) == 0 {
		return ""
	}
	return fmt.Sprint(len(e.Changes))
}

// code is text that Markdown shows as it is.
func code(text string) string { return "`" + strings.ReplaceAll(text, "`", "'") + "`" }

// cell is code in a cell of a table.
func cell(text string) string {
	if text == "" {
		return ""
	}
	return code(strings.ReplaceAll(text, "|", "\\|"))
}

// paragraph is text that Markdown shows as it is, in a paragraph.
func paragraph(s *Stream, text string) string {
	text = s.Text(strings.Join(strings.Fields(text), " "))
	escape := []string{"<", "&lt;", ">", "&gt;"}
	for _, c := range []string{`\`, "*", "_", "`", "[", "|"} {
		escape = append(escape, c, `\`+c)
	}
	return strings.NewReplacer(escape...).Replace(text)
}
