package local

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// referencePath returns the directory that stands for a Secret or ConfigMap of the user, with a file for each key, as
// pods mount it. It is relative to Options.References.
func referencePath(kind, name string) string {
	if kind == kindSecret {
		return filepath.Join("secrets", name)
	}
	return filepath.Join("configmaps", name)
}

// orUser returns a lookup that finds the user's Secrets and ConfigMaps if the setup does not create them.
func (r *Runtime) orUser(find lookup) lookup {
	return func(kind, name string) (*unstructured.Unstructured, error) {
		obj, err := find(kind, name)
		if obj != nil || err != nil || r.options.References == "" || kind != kindSecret && kind != kindConfigMap {
			return obj, err
		}
		return readReference(kind, name, filepath.Join(r.options.References, referencePath(kind, name)))
	}
}

// readReference reads a directory as a Secret or ConfigMap. It returns nil if the directory does not exist.
func readReference(kind, name, dir string) (*unstructured.Unstructured, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	data := map[string]any{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read %s %s: %w", kind, name, err)
		}
		data[e.Name()] = base64.StdEncoding.EncodeToString(content)
	}
	field := "binaryData"
	if kind == kindSecret {
		field = "data"
	}
	return &unstructured.Unstructured{Object: map[string]any{"kind": kind, "metadata": map[string]any{"name": name},
		field: data}}, nil
}
