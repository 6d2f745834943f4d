// Package examples contains the setup files that kcpctl init writes.
package examples

import (
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

// Read returns the text of an example.
func Read(name string) ([]byte, error) {
	data, err := files.ReadFile(name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("example %q not found, known: %s", name, strings.Join(Names(), ", "))
	}
	return data, nil
}
