package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// comments are comments by name: of types by Type, and of fields by Type.Field. Type=value is a constant of a type.
type comments map[string]string

// readComments reads the comments of a package's structs.
func readComments(dir string) (comments, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	out := comments{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("read comments: %w", err)
		}
		for _, decl := range file.Decls {
			if types, ok := decl.(*ast.GenDecl); ok {
				out.add(types)
			}
		}
	}
	return out, nil
}

func (c comments) add(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		c.addConstants(spec)
		t, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		c[t.Name.Name] = oneLine(decl.Doc.Text())
		s, ok := t.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range s.Fields.List {
			for _, name := range f.Names {
				c[t.Name.Name+"."+name.Name] = oneLine(f.Doc.Text())
			}
		}
	}
}

// addConstants adds the constants of types.
func (c comments) addConstants(spec ast.Spec) {
	v, ok := spec.(*ast.ValueSpec)
	if !ok {
		return
	}
	t, ok := v.Type.(*ast.Ident)
	if !ok {
		return
	}
	for _, value := range v.Values {
		literal, ok := value.(*ast.BasicLit)
		if !ok {
			continue
		}
		if text, err := strconv.Unquote(literal.Value); err == nil {
			c[t.Name+"="+text] = ""
		}
	}
}

// of returns the comment of a type, or of one of its fields.
func (c comments) of(t reflect.Type, field string) string {
	return c[strings.TrimSuffix(t.Name()+"."+field, ".")]
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
