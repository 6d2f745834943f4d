// Package pages reads the commands in the shell blocks of the documents, with what they print, for tests.
package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Local is the run of a block without a comment: on this machine, without a cluster.
const Local = "local"

// Block is a shell block of a page.
type Block struct {
	// Page is the path of the page from the root of the repository, Line the number of the first line of the block.
	Page string
	Line int
	// Run is the run of the page that types the block. It is empty if there is a Reason not to type it.
	Run, Reason string
	Commands    []Command
}

func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Command is a command of a block.
type Command struct {
	// Text is what users type, without a comment. It has several lines if it contains a document.
	Text string
	// Fails reports whether the command fails: its comment begins with that word.
	Fails bool
	// Output are the lines that the page shows below the command.
	Output []string
}

// Pages returns the paths of all pages of a repository, from its root.
func Pages(root string) ([]string, error) {
	var out []string
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, page := range found {
			out = append(out, filepath.ToSlash(strings.TrimPrefix(page,
				filepath.Clean(root)+string(filepath.Separator))))
		}
	}
	return out, nil
}

// All returns the shell blocks of all pages of a repository.
func All(root string) ([]Block, error) {
	names, err := Pages(root)
	if err != nil {
		return nil, err
	}
	var out []Block
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		found, err := Parse(name, string(text))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

var (
	fence  = regexp.MustCompile("^( *)```(\\w*)$")
	marker = regexp.MustCompile(`^ *<!-- (not run|run): (.+) -->$`)
)

// Parse returns the shell blocks of a page. A console block has a prompt before each command, and output between them.
// Each line of an sh block is a command. A comment in the line before a block, not run: REASON or run: NAME, is
// about the block.
func Parse(page, text string) ([]Block, error) {
	var out []Block
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		open := fence.FindStringSubmatch(lines[i])
		if open == nil {
			if marker.MatchString(lines[i]) && !isShell(lines, i+1) {
				return nil, fmt.Errorf("%s:%d: there is no shell block below the comment", page, i+1)
			}
			continue
		}
		end := i + 1
		for end < len(lines) && lines[end] != open[1]+"```" {
			end++
		}
		if end == len(lines) {
			return nil, fmt.Errorf("%s:%d: the block does not end", page, i+1)
		}
		if isShell(lines, i) {
			b := Block{Page: page, Line: i + 2, Run: Local}
			if i > 0 {
				b.mark(lines[i-1])
			}
			if b.Commands = commands(open[2], open[1], lines[i+1:end]); len(b.Commands) == 0 {
				return nil, fmt.Errorf("%s: there is no command in the block", b)
			}
			out = append(out, b)
		}
		i = end
	}
	return out, nil
}

// isShell reports whether a shell block begins at a line.
func isShell(lines []string, i int) bool {
	if i >= len(lines) {
		return false
	}
	open := fence.FindStringSubmatch(lines[i])
	return open != nil && (open[2] == "console" || open[2] == "sh")
}

// mark reads the comment in the line before a block.
func (b *Block) mark(line string) {
	switch m := marker.FindStringSubmatch(line); {
	case m == nil:
	case m[1] == "run":
		b.Run = m[2]
	default:
		b.Run, b.Reason = "", m[2]
	}
}

var (
	document = regexp.MustCompile(`<<'?(\w+)'?$`)
	comment  = regexp.MustCompile(` +# (.*)$`)
)

// commands returns the commands in the lines of a block.
func commands(language, indent string, lines []string) []Command {
	var out []Command
	for i := 0; i < len(lines); i++ {
		line := strings.TrimPrefix(lines[i], indent)
		text, typed := strings.CutPrefix(line, "$ ")
		if language == "console" && !typed {
			if len(out) > 0 {
				last := &out[len(out)-1]
				last.Output = append(last.Output, line)
			}
			continue
		}
		var c Command
		if m := comment.FindStringSubmatchIndex(text); m != nil {
			c.Fails = strings.HasPrefix(text[m[2]:m[3]], "fails")
			text = text[:m[0]]
		}
		c.Text = text
		if m := document.FindStringSubmatch(text); m != nil {
			for line = ""; line != m[1] && i+1 < len(lines); {
				i++
				line = strings.TrimPrefix(lines[i], indent)
				c.Text += "\n" + line
			}
		}
		if text != "" {
			out = append(out, c)
		}
	}
	return out
}
