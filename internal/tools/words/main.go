// Words finds phrases that read as translated, in Go files, documents and scripts of tests below the paths that it is given. It
// prints where they are, and fails if there are any.
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

// phrases are regular expressions of what this project does not write. The words of kubectl, kubeadm, etcd and the Kubernetes
// documentation take their place, in short main clauses.
func phrases() []string {
	return []string{
		// Godoc of a function that returns a bool begins with "reports whether".
		`tells? whether`, `tells? if`, `says? whether`, `looks? whether`, `reports whether or not`,
		// Say again, repair, continue.
		`\banew\b`, `\bmend(s|ed|ing)?\b`, `\bgoes on to\b`, `\bgo on to\b`, `\bgo on with\b`, `\bgone on\b`, `\bit goes on\b`,
		// Say not a valid duration.
		`\bis no (valid |)(duration|YAML|path|name|number|DNS|URL|shard|file)\b`,
		`\bat (most|least) one of them which\b`, `\bthat what\b`, `\bsuch a one\b`, `\bin vain\b`, `\bby hand of\b`,
		// Say no one, or who it is: users, clients, components.
		`\bnobody\b`, `\bwhoever\b`, `\bwho (wants|asks|has|reads|calls|needs)\b`,
		// Say the previous one, the current one, instead of; certificates are your own, and files are imported.
		`\bthe former one\b`, `\bthe former ones\b`, `\bin place of\b`, `\bpresent one\b`, `\bbrought\b`, `\bis there to be\b`,
		`\bthe program of\b`, `\bworks on the setup\b`, `\btake (them|it) back\b`, `\bis over soon\b`, `\bis asked again and again\b`,
		`\bfor ever\b`, `\bmeanwhile\b.*\bmeanwhile\b`, `\bof which a\b`, `\bstop working that\b`, `\bthose of them\b`,
	}
}

// kinds are the files that are read, by the ends of their names.
func kinds() []string { return []string{".go", ".md", ".txtar"} }

func main() {
	log.SetFlags(0)
	found, err := search(os.Stdout, os.Args[1:])
	if err == nil && found > 0 {
		err = fmt.Errorf("%d lines read as translated: use the words of the Kubernetes documentation (internal/tools/words has the list)", found)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// search prints every line below paths that has one of the phrases, and returns how many there are.
func search(out io.Writer, paths []string) (found int, err error) {
	if len(paths) == 0 {
		return 0, errors.New("usage: words PATH...")
	}
	unwanted, err := regexp.Compile("(?i)" + strings.Join(phrases(), "|"))
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains(kinds(), filepath.Ext(name)) {
				return err
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			found += report(out, name, text, unwanted)
			return nil
		})
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// report prints the lines of a file that have a phrase, as file:line:text, and returns how many there are.
func report(out io.Writer, name string, text []byte, unwanted *regexp.Regexp) (found int) {
	number := 0
	for line := range bytes.Lines(text) {
		if number++; unwanted.Match(line) {
			found++
			fmt.Fprintf(out, "%s:%d:%s\n", name, number, bytes.TrimRight(line, "\r\n"))
		}
	}
	return found
}
