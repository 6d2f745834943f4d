// Words finds phrases that this project does not use in Go files, documents, setup files and test scripts. It prints
// each with its position and what to write instead, and fails if there are any.
package main

import (
	"bytes"
	"errors"
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

// kinds are the extensions of the files to read, or the names of files without one.
var kinds = []string{".go", ".md", ".txtar", ".yaml", ".sh", "Makefile"}

// skipped are directories that are not read: the list itself, and files of other projects.
var skipped = []string{".git", "bin", "dist", "node_modules", "internal/tools/words", "test/testbed/build"}

func main() {
	log.SetFlags(0)
	found, err := search(os.Stdout, os.Args[1:])
	if err == nil && found > 0 {
		err = fmt.Errorf("found %d phrases. Use the plain English of the Kubernetes documentation (list: internal/tools/words/phrases.go)", found)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// search prints the phrases in all files below paths, and returns their number. It fails if a path does not exist.
func search(out io.Writer, paths []string) (found int, err error) {
	if len(paths) == 0 {
		return 0, errors.New("usage: words PATH...")
	}
	for _, path := range paths {
		err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains(skipped, filepath.ToSlash(filepath.Clean(name))):
				return filepath.SkipDir
			case d.IsDir() || !isRead(name):
				return nil
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			found += report(out, name, text)
			return nil
		})
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// isRead reports whether a file is checked. Of test data, these are only scripts: other files can be inputs that users
// write.
func isRead(name string) bool {
	ext := filepath.Ext(name)
	if strings.Contains(filepath.ToSlash(name), "/testdata/") && ext != ".txtar" {
		return false
	}
	return slices.Contains(kinds, ext) || slices.Contains(kinds, filepath.Base(name))
}

// report prints the phrases in a file as file:line: "phrase": what to write instead: line. It returns their number.
func report(out io.Writer, name string, text []byte) (found int) {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		checked := allowed.ReplaceAll(line, nil)
		for _, p := range phrases {
			if hit := p.pattern.Find(checked); hit != nil {
				found++
				fmt.Fprintf(out, "%s:%d: %q: write %s: %s\n", name, number, hit, p.instead, bytes.TrimSpace(line))
			}
		}
	}
	return found
}

// phrase is what the project does not write, and what it writes instead.
type phrase struct {
	pattern *regexp.Regexp
	instead string
}

// not makes a phrase. Patterns match whole words in any case.
func not(pattern, instead string) phrase {
	return phrase{regexp.MustCompile(`(?i)\b(?:` + pattern + `)\b`), instead}
}
