// Habits counts habits that make Go files of the product harder to read, such as lines that are too long. Each habit
// has a budget that only falls: more is an error, and less is one until the budget is lowered.
package main

import (
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	// maxColumns is the width of a line, with tabWidth columns for a tab.
	maxColumns = 120
	tabWidth   = 4
)

// habit is a pattern with the number of lines that may match it.
type habit struct {
	name    string
	budget  int
	advice  string
	matches func(line string) bool
}

// habits are those that reviews found most often.
func habits() []habit {
	return []habit{
		{"long-lines", 135, "break the line", isLong},
		{"assignments", 8, "assign independent values one at a time", isPair},
		{"those-of", 0, "name what is meant, instead of those of, that of, those in", comment(
			`\b([Tt]hose|[Tt]hat) (of|in|on|with|whose|which)\b`)},
		{"what-it-is", 0, "use a noun, instead of what it is", comment(
			`\b(is|are|of|and|with|does) what (a|the|it|is|kcpctl|up)\b|// [A-Za-z]+ is what\b`)},
		{"of-its-own", 0, "write its own log, instead of a log of its own", comment(`\bof (its|their) own\b`)},
		{"how-far", 0, "write progress, or state", comment(`\bhow far\b`)},
		{"stays", 3, "write is kept, or continues to run", comment(`\bstays?\b|\bis left alone\b|\bleaves? out\b`)},
		{"nothing-of", 0, "write that it is not", comment(`\bnothing (of|else)\b|\b(has|have) none\b`)},
		{"asks", 0, "write requests, or checks", comment(
			`\basks? (for|whether|the)\b|\bis asked\b|\bany (longer|more)\b`)},
	}
}

func isLong(line string) bool {
	return len([]rune(strings.ReplaceAll(line, "\t", strings.Repeat(" ", tabWidth)))) > maxColumns
}

var (
	pair   = regexp.MustCompile(`^\s*[A-Za-z_.]+, [A-Za-z_.]+(, [A-Za-z_.]+)* :?= [^()<]+, [^()]+$`)
	needed = regexp.MustCompile(`:?= (range|<-)|, ok :?=|err :?=|\[.*\], ok`)
)

// isPair reports whether a line assigns several values at once that can be assigned one at a time. It also counts the
// lines that need it, such as those that swap two values.
func isPair(line string) bool { return pair.MatchString(line) && !needed.MatchString(line) }

// comment returns a function that reports whether a line is a comment that matches an expression.
func comment(expression string) func(string) bool {
	matches := regexp.MustCompile(`^\s*//.*(` + expression + `)`)
	return matches.MatchString
}

func main() {
	log.SetFlags(0)
	list := flag.String("list", "", "print the lines with the habit of this `NAME`")
	flag.Parse()
	lines, err := read(os.DirFS("."), "main.go", "cmd", "internal")
	if err == nil && *list != "" {
		err = show(os.Stdout, lines, *list)
	} else if err == nil {
		err = check(lines, habits())
	}
	if err != nil {
		log.Fatal(err)
	}
}

// line is a line of a file.
type line struct {
	file   string
	number int
	text   string
}

// read returns the lines of the Go files of the product: without tests, their helpers, and tools.
func read(fsys fs.FS, paths ...string) (out []line, _ error) {
	for _, path := range paths {
		err := fs.WalkDir(fsys, path, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains([]string{"internal/testutil", "internal/tools"}, name):
				return fs.SkipDir
			case d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			raw, err := fs.ReadFile(fsys, name)
			if err != nil {
				return err
			}
			for i, text := range strings.Split(string(raw), "\n") {
				out = append(out, line{name, i + 1, text})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// check returns an error for each habit whose number of lines is not its budget.
func check(lines []line, habits []habit) error {
	var problems []string
	for _, h := range habits {
		n := 0
		for _, l := range lines {
			if h.matches(l.text) {
				n++
			}
		}
		switch {
		case n > h.budget:
			problems = append(problems, fmt.Sprintf("%s: %d lines, and the budget is %d: %s (go run ./internal/tools/habits -list %s)",
				h.name, n, h.budget, h.advice, h.name))
		case n < h.budget:
			problems = append(problems, fmt.Sprintf("%s: only %d lines are left: lower the budget of %d in internal/tools/habits",
				h.name, n, h.budget))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s", strings.Join(problems, "\n"))
	}
	return nil
}

// show prints the lines with a habit.
func show(out io.Writer, lines []line, name string) error {
	i := slices.IndexFunc(habits(), func(h habit) bool { return h.name == name })
	if i < 0 {
		return fmt.Errorf("there is no habit %q", name)
	}
	for _, l := range lines {
		if habits()[i].matches(l.text) {
			fmt.Fprintf(out, "%s:%d: %s\n", l.file, l.number, strings.TrimSpace(l.text))
		}
	}
	return nil
}
