// Command agent copies what kcpctl needs of the api-syncagent from the module cache: its CRD, to
// templates/agent/crd.yaml, and the names of the functions that its templates can use, to
// internal/desired/agent/functions.txt.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// module is a module of which files are copied, and the checksum of its content. The checksum database does not know
// modules of kcp-dev, so it is compared here.
type module struct{ path, version, sum string }

var (
	syncagent = module{"github.com/kcp-dev/api-syncagent", "v0.7.0", "h1:QarIs53ogaLYRTQdH+CCa580TON6UdtQMHL6OSu/L2o="}
	// sprig is the release that the api-syncagent requires.
	sprig = module{"github.com/Masterminds/sprig/v3", "v3.3.0", "h1:mQh0Yrg1XPo6vjYXgtf5OtijNAKJRNcTdOOGZe3tPhs="}
)

// own are the functions that the api-syncagent adds (internal/sync/templating/templating.go), which mutations do not
// have.
var own = []string{"sha3sum", "sha3short", "shortHash"}

const crd = "deploy/crd/kcp.io/syncagent.kcp.io_publishedresources.yaml"

func main() {
	root := flag.String("root", ".", "the repository's root")
	flag.Parse()
	if err := write(*root); err != nil {
		log.Fatal(err)
	}
}

// write writes the files of the repository at root.
func write(root string) error {
	manifest, err := readCRD()
	if err != nil {
		return err
	}
	names, err := functions()
	if err != nil {
		return err
	}
	for path, text := range map[string]string{
		"templates/agent/crd.yaml":             manifest,
		"internal/desired/agent/functions.txt": strings.Join(names, "\n") + "\n",
	} {
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write generated file: %w", err)
		}
	}
	return nil
}

// readCRD returns the CRD of the agent with its origin and licence.
func readCRD() (string, error) {
	dir, err := download(syncagent)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(filepath.Join(dir, crd))
	if err != nil {
		return "", fmt.Errorf("read CRD: %w", err)
	}
	return fmt.Sprintf("# Copied from %s %s, %s, by internal/tools/agent.\n"+
		"# Copyright The KCP Authors. Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0\n%s",
		syncagent.path, syncagent.version, crd, strings.TrimPrefix(string(data), "---\n")), nil
}

// functions returns the names of all functions of templates, sorted: the keys of sprig's genericMap.
func functions() ([]string, error) {
	dir, err := download(sprig)
	if err != nil {
		return nil, err
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "functions.go"), nil, 0)
	if err != nil {
		return nil, fmt.Errorf("parse sprig: %w", err)
	}
	names := slices.Clone(own)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "genericMap" {
			return true
		}
		for _, e := range spec.Values[0].(*ast.CompositeLit).Elts {
			name, err := strconv.Unquote(e.(*ast.KeyValueExpr).Key.(*ast.BasicLit).Value)
			if err == nil {
				names = append(names, name)
			}
		}
		return false
	})
	slices.Sort(names)
	return names, nil
}

// download returns the directory of a module in the module cache.
func download(m module) (string, error) {
	c := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version)
	c.Env = append(os.Environ(), "GONOSUMDB=github.com/kcp-dev/*")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("download %s: %w", m.path, err)
	}
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &got); err != nil {
		return "", fmt.Errorf("download %s: %w", m.path, err)
	}
	if got.Sum != m.sum {
		return "", fmt.Errorf("%s %s has the checksum %s, not %s: compare it with the release", m.path, m.version, got.Sum, m.sum)
	}
	return got.Dir, nil
}
