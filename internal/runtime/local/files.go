package local

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
)

// lookup finds an object that a workload mounts. It returns nil if there is none.
type lookup func(kind, name string) (*unstructured.Unstructured, error)

// files returns the files that a workload mounts, by path.
func (w *workload) files(find lookup) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, m := range w.mounts {
		for _, s := range m.sources {
			obj, err := find(s.kind, s.name)
			if err != nil {
				return nil, err
			}
			if obj == nil && s.optional {
				continue
			}
			if obj == nil {
				return nil, clierr.New(clierr.BadInput,
					"with --local, write each of its keys to a file in the directory "+referencePath(s.kind,
						s.name)+" next to the setup file",
					"%s %s, which Deployment %s mounts, is not part of the setup", s.kind, s.name, w.name)
			}
			if err := s.files(obj, m.path, out); err != nil {
				return nil, fmt.Errorf("%s %s, which Deployment %s mounts: %w", s.kind, s.name, w.name, err)
			}
		}
	}
	return out, nil
}

func (s source) files(obj *unstructured.Unstructured, dir string, out map[string][]byte) error {
	data, err := dataOf(obj)
	if err != nil {
		return err
	}
	items := s.items
	if len(items) == 0 {
		for key := range data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, i := range items {
		content, ok := data[i.Key]
		if !ok && s.optional {
			continue
		}
		if !ok {
			return fmt.Errorf("no key %s", i.Key)
		}
		if !filepath.IsLocal(i.Path) {
			return fmt.Errorf("the path %s is outside the volume", i.Path)
		}
		out[filepath.Join(dir, i.Path)] = content
	}
	return nil
}

// dataOf returns the data of a Secret or ConfigMap.
func dataOf(obj *unstructured.Unstructured) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, field := range []string{"data", "binaryData", "stringData"} {
		entries, _, err := unstructured.NestedStringMap(obj.Object, field)
		if err != nil {
			return nil, err
		}
		for key, value := range entries {
			out[key] = []byte(value)
			if field == "binaryData" || field == "data" && obj.GetKind() == kindSecret {
				if out[key], err = base64.StdEncoding.DecodeString(value); err != nil {
					return nil, fmt.Errorf("key %s: %w", key, err)
				}
			}
		}
	}
	return out, nil
}

// differ returns the first file, by path, that is missing or has another content.
func differ(files map[string][]byte) string {
	first := ""
	for path, want := range files {
		have, err := os.ReadFile(path)
		if (err != nil || !bytes.Equal(have, want)) && (first == "" || path < first) {
			first = path
		}
	}
	return first
}

// write creates the directories of a workload and updates its files. It removes files that the workload no longer
// mounts.
func (w *workload) write(files map[string][]byte) error {
	for _, dir := range append([]string{w.dir}, w.dataDirs...) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return explain(err)
		}
	}
	for path, content := range files {
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, content) {
			continue
		}
		if err := disk.WriteState(path, content); err != nil {
			return err
		}
	}
	for _, m := range w.mounts {
		err := filepath.WalkDir(m.path, func(path string, d fs.DirEntry, err error) error {
			if _, wanted := files[path]; err == nil && !d.IsDir() && !wanted {
				return os.Remove(path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return explain(err)
		}
	}
	return nil
}

// remove removes the directory of a workload, but not its data.
func (w *workload) remove() error {
	entries, err := os.ReadDir(w.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if path := filepath.Join(w.dir, e.Name()); !w.keepsData(path) {
			if err := os.RemoveAll(path); err != nil {
				return explain(err)
			}
		}
	}
	disk.RemoveEmpty(w.dir) // unless data is left
	return nil
}

func (w *workload) keepsData(path string) bool {
	for _, dir := range w.dataDirs {
		if dir == path || within(path, dir) {
			return true
		}
	}
	return false
}
