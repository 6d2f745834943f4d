// Command schema generates docs/kcp.schema.json, a JSON schema for editors, and docs/setup.md, a reference of all
// fields, from the types of the setup file. It also generates docs/schemas, the JSON schemas of what commands print,
// docs/commands.md, a reference of all commands, and docs/coming-from-fields.md, the fields of kcp-operator and of the
// chart. With -release, it writes the man pages and completions of a release instead, from the same help.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kcpctl/kcpctl/cmd"
)

func main() {
	root := flag.String("root", ".", "the repository's root")
	dir := flag.String("release", "", "`DIRECTORY` for man pages and completions")
	var e edition
	flag.StringVar(&e.version, "version", "", "version in the man pages")
	flag.StringVar(&e.date, "date", "", "date in the man pages")
	flag.Parse()
	var err error
	if *dir == "" {
		err = write(*root)
	} else {
		err = release(*dir, e)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// write writes the generated files of the repository at root.
func write(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for path, data := range files {
		if err := os.WriteFile(filepath.Join(root, path), data, 0o644); err != nil {
			return fmt.Errorf("write generated file: %w", err)
		}
	}
	return nil
}

// generate returns the generated files by path, from the sources of the repository at root.
func generate(root string) (map[string][]byte, error) {
	c, err := readComments(filepath.Join(root, "internal", "api", "v1alpha1"))
	if err != nil {
		return nil, err
	}
	schema, err := jsonSchema(c)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"docs/kcp.schema.json": schema, "docs/setup.md": reference(c), "docs/commands.md": commands(cmd.Commands()),
		"docs/coming-from-fields.md": peersPage(),
	}
	return files, addOutputs(files, root)
}
