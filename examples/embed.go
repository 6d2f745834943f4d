// Package examples contains the setup files that kcpctl init writes.
package examples

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Names returns the names of all examples, in order.
func Names() []string {
	paths, _ := fs.Glob(files, "*.yaml") // the pattern is well-formed
	var out []string
	for _, p := range paths {
		out = append(out, strings.TrimSuffix(p, path.Ext(p)))
	}
	return out
}

// Purpose returns the first sentence of an example, without its full stop. The smallest one has no comment.
func Purpose(name string) string {
	data, err := Read(name)
	if err != nil {
		return ""
	}
	var words []string
	for line := range strings.Lines(string(data)) {
		text, comment := strings.CutPrefix(line, "#")
		if !comment {
			break
		}
		words = append(words, strings.Fields(text)...)
		if n := len(words); n > 0 && strings.HasSuffix(words[n-1], ".") {
			break
		}
	}
	sentence, _, _ := strings.Cut(strings.Join(words, " "), ". ")
	return cmp.Or(strings.TrimSuffix(sentence, "."), "The smallest setup: a root shard with its etcd, and a front-proxy")
}

// Read returns the text of an example.
func Read(name string) ([]byte, error) {
	data, err := files.ReadFile(name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("example %q not found, known: %s", name, strings.Join(Names(), ", "))
	}
	return data, nil
}
