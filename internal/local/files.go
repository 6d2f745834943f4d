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

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// lookup finds the Secret or ConfigMap that a workload mounts: nil if there is none.
type lookup func(kind, name string) (*unstructured.Unstructured, error)

// files are the files that a workload mounts, by path.
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
				return nil, clierr.New(clierr.BadInput, "only what the setup itself makes can be mounted on this machine",
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
			return fmt.Errorf("it has no entry %s", i.Key)
		}
		if !filepath.IsLocal(i.Path) {
			return fmt.Errorf("the path %s leaves the volume", i.Path)
		}
		out[filepath.Join(dir, i.Path)] = content
	}
	return nil
}

// dataOf are the entries of a Secret or ConfigMap.
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
					return nil, fmt.Errorf("entry %s: %w", key, err)
				}
			}
		}
	}
	return out, nil
}

// differ returns the first file that is not as it should be, by path.
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

// write makes the folders of a workload and brings its files up to date. Files that it mounts no more are removed.
func (w *workload) write(files map[string][]byte) error {
	for _, dir := range append([]string{w.dir}, w.dataDirs...) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return writeError(err)
		}
	}
	for path, content := range files {
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, content) {
			continue
		}
		if err := writeFile(path, content); err != nil {
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
			return writeError(err)
		}
	}
	return nil
}

// remove removes the folder of a workload, all but its data.
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
				return writeError(err)
			}
		}
	}
	_ = os.Remove(w.dir) // fails if data is left
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
