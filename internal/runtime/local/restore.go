package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/kcpctl/kcpctl/internal/client/etcd/datadir"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// dirEtcd is the directory of the embedded etcd of a server, in its data directory.
const dirEtcd = "etcd"

// PrepareRestore does nothing: the state directory is created with its first file.
func (r *Runtime) PrepareRestore(context.Context) error { return nil }

// WasHere reports whether data was on a machine, which is taken to be this one.
func (r *Runtime) WasHere(_ context.Context, d record.Data) (bool, error) {
	return d.Cluster == "", nil
}

// Placeable accepts all components: on this machine each has an embedded etcd.
func (r *Runtime) Placeable(context.Context, []*topology.Component) error { return nil }

// PlaceData makes a database the data of a server, which does not run. What the server has is moved aside. The result
// has the ID of the new directory, for the record.
func (r *Runtime) PlaceData(_ context.Context, c *topology.Component, data run.Restored) (run.Placed, error) {
	dir := etcdOf(c)
	out, err := placeIn(dir, data)
	if err != nil {
		return out, explain(err)
	}
	id, _, err := readVolume(dir.Path)
	if err != nil {
		return out, err
	}
	name, err := filepath.Rel(r.layout.Dir, dir.Path)
	out.Data = map[topology.ID]record.Data{c.ID(): {
		Etcd: record.EtcdEmbedded, Release: c.Version, Volumes: map[string]string{name: id},
	}}
	return out, err
}

// placeIn places a database in a data directory, unless an interrupted restore has placed it there.
func placeIn(dir datadir.Directory, data run.Restored) (run.Placed, error) {
	f, err := os.Open(data.File)
	if err != nil {
		return run.Placed{}, err
	}
	info, err := f.Stat()
	digest, digestErr := datadir.Digest(f)
	if err := errors.Join(err, digestErr, f.Close()); err != nil {
		return run.Placed{}, err
	}
	if holds, err := dir.Holds(info.Size(), digest); err != nil || holds {
		return run.Placed{}, err
	}
	aside, err := dir.Place(data.Suffix, func(path string) error { return moveFile(data.File, path) })
	return run.Placed{Aside: existing(aside)}, err
}

// SetAside moves the data of a server aside, so that it begins without.
func (r *Runtime) SetAside(_ context.Context, c *topology.Component, data run.Restored) (run.Placed, error) {
	aside, err := etcdOf(c).SetAside(data.Suffix)
	return run.Placed{Aside: existing(aside)}, explain(err)
}

// etcdOf returns the data directory of the embedded etcd of a server.
func etcdOf(c *topology.Component) datadir.Directory {
	return datadir.Directory{Path: filepath.Join(c.DataDir, dirEtcd), Mark: markDirectory}
}

// existing returns a list of a path, unless it is empty.
func existing(path string) []string {
	if path == "" {
		return nil
	}
	return []string{path}
}

// moveFile moves a file, also to another file system.
func moveFile(from, to string) error {
	if os.Rename(from, to) == nil {
		return nil
	}
	return copyFile(from, to, 0)
}
