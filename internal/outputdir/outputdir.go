// Package outputdir writes the files of a setup into a directory, and removes those that an earlier run wrote there and that the
// setup does not have any more. A list in the directory says which these are.
package outputdir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/atomicfile"
	"github.com/kcpctl/kcpctl/internal/clierr"
)

// File is a file to write.
type File struct {
	// Path is relative to the directory.
	Path string
	Data []byte
}

// Result says what Write has done besides writing.
type Result struct {
	// Removed are the paths of files that an earlier run wrote.
	Removed []string
	// Kept are the paths of files that an earlier run wrote and that were changed since.
	Kept []string
}

// Write writes files below dir, which only their owner can read, and removes the files of earlier calls for the same owner that
// are not among them. It removes regular files only, inside dir, with the content that it wrote: what was changed since stays.
// Files of other owners are left alone.
//
// The list has more than there is while files are written, and exactly what there is afterwards, so that the call after one that
// was interrupted still knows every file.
func Write(dir, owner string, files []File) (Result, error) {
	now := list{}
	for _, f := range files {
		if !filepath.IsLocal(f.Path) {
			return Result{}, fmt.Errorf("write %s: the path leads out of %s", f.Path, dir)
		}
		now.add(filepath.ToSlash(f.Path), sumOf(f.Data))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Result{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Result{}, err
	}
	defer root.Close()
	listFile := filepath.Join(dir, listName(owner))
	before, err := readList(listFile)
	if err != nil {
		return Result{}, clierr.New(clierr.Failed, "restore the file, or delete it: files of earlier runs then stay", "read %s: %w", listFile, err)
	}
	if err := atomicfile.Write(listFile, before.union(now).encode(), 0o600); err != nil {
		return Result{}, err
	}
	if err := writeAll(dir, files); err != nil {
		return Result{}, err
	}
	res, kept, err := prune(root, before, now)
	if err != nil {
		return Result{}, err
	}
	return res, atomicfile.Write(listFile, now.union(kept).encode(), 0o600)
}

func writeAll(dir string, files []File) error {
	var g errgroup.Group
	g.SetLimit(4 * runtime.GOMAXPROCS(0)) // they wait for the disk
	for _, f := range files {
		g.Go(func() error {
			path := filepath.Join(dir, f.Path)
			if isWritten(path, f.Data) {
				return nil
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			return atomicfile.Write(path, f.Data, 0o600)
		})
	}
	return g.Wait()
}

// isWritten reports whether a file is already what Write makes it: to wait for the disk costs more than to read.
func isWritten(path string, data []byte) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o600 || info.Size() != int64(len(data)) {
		return false
	}
	is, err := os.ReadFile(path)
	return err == nil && bytes.Equal(is, data)
}

// prune removes the files that are in one list and not in the other. Those that it keeps stay in the list, so that they are
// reported as long as they are there.
func prune(root *os.Root, before, now list) (Result, list, error) {
	var res Result
	kept := list{}
	for _, path := range before.paths() {
		if _, ok := now[path]; ok {
			continue
		}
		found, err := before.look(root, path)
		switch {
		case err != nil:
			return Result{}, nil, fmt.Errorf("remove %s: %w", filepath.Join(root.Name(), filepath.FromSlash(path)), err)
		case found == changed:
			res.Kept = append(res.Kept, path)
			kept.add(path, before[path]...)
		case found == unchanged:
			if err := root.Remove(filepath.FromSlash(path)); err != nil {
				return Result{}, nil, fmt.Errorf("remove: %w", err)
			}
			res.Removed = append(res.Removed, path)
			removeEmpty(root, path)
		}
	}
	return res, kept, nil
}

// removeEmpty removes the folders above a removed file that are empty now.
func removeEmpty(root *os.Root, path string) {
	for dir := filepath.Dir(filepath.FromSlash(path)); dir != "."; dir = filepath.Dir(dir) {
		if info, err := root.Lstat(dir); err != nil || !info.IsDir() || root.Remove(dir) != nil {
			return // a folder that is not empty cannot be removed
		}
	}
}

type state int

const (
	gone state = iota
	unchanged
	changed
)

// look compares the file at a path with the list. Anything but a regular file counts as changed.
func (l list) look(root *os.Root, path string) (state, error) {
	name := filepath.FromSlash(path)
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return gone, nil
	case err != nil:
		return gone, err
	case !info.Mode().IsRegular():
		return changed, nil
	}
	data, err := root.ReadFile(name)
	if err != nil {
		return gone, err
	}
	if slices.Contains(l[path], sumOf(data)) {
		return unchanged, nil
	}
	return changed, nil
}

// listName is the name of the list of an owner. It has no suffix that tools which read whole directories of manifests know.
func listName(owner string) string { return ".kcpctl-" + owner + ".sha256" }
