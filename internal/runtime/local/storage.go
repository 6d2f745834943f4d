package local

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
)

// fileVolume is a file in a data directory. It has the ID of the directory, which the record has, too: a directory that
// was deleted and created again has another ID, or none.
const fileVolume = "kcpctl-volume"

// Storage returns the IDs of the data directories of components, by their names below the state directory.
func (r *Runtime) Storage(_ context.Context, data map[topology.ID]record.Data) (map[topology.ID]record.Storage, error) {
	out := map[topology.ID]record.Storage{}
	for id, d := range data {
		if !filepath.IsAbs(d.Directory) {
			continue
		}
		volumeID, ok, err := readVolume(d.Directory)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(r.layout.Dir, d.Directory)
		if err != nil {
			return nil, err
		}
		if ok {
			out[id] = record.Storage{Volumes: map[string]string{name: volumeID}}
		}
	}
	return out, nil
}

// Unused returns nothing: the record of an installation and its data are in the same directory.
func (r *Runtime) Unused(context.Context, map[topology.ID]record.Data) (map[topology.ID][]record.Data, error) {
	return nil, nil
}

// Keep writes the record of the installation.
func (r *Runtime) Keep(_ context.Context, rec *record.Record) error { return r.writeRecord(rec) }

// readVolume returns the ID of a data directory. The ID is empty if there is none, and ok is false if the directory
// holds no data.
func readVolume(dir string) (id string, ok bool, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return "", false, nil
	}
	if err != nil {
		return "", false, explain(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, fileVolume))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false, explain(err)
	}
	return strings.TrimSpace(string(raw)), true, nil
}

// markDirectories gives the data directories of a record an ID if they lack one because they are from earlier releases.
func (r *Runtime) markDirectories(rec *record.Record) error {
	for _, d := range rec.Data {
		for name := range d.Volumes {
			dir := r.layout.path(name)
			_, ok, err := readVolume(dir)
			if ok && err == nil {
				err = markDirectory(dir)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// markDirectory makes a data directory, and gives it an ID unless it has one. Without a name it does nothing.
func markDirectory(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return explain(err)
	}
	if id, _, err := readVolume(dir); err != nil || id != "" {
		return err
	}
	return disk.WriteState(filepath.Join(dir, fileVolume), []byte(strings.ToLower(rand.Text())+"\n"))
}

// etcdDir returns the data directory of the embedded etcd of a workload, or "".
func (w *workload) etcdDir() string {
	for _, a := range w.args {
		if dir, ok := strings.CutPrefix(a, "--embedded-etcd-directory="); ok && filepath.IsAbs(dir) {
			return dir
		}
	}
	return ""
}
