// Package outputdir writes the files of a setup to a directory, and removes files of previous runs that the setup no
// longer has. A list in the directory contains the files of the previous run.
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
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/kit/atomicfile"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// File is a file to write.
type File struct {
	// Path is relative to the directory.
	Path string
	Data []byte
}

// Result is what Write did besides writing files.
type Result struct {
	// Removed are the paths of removed files of previous runs.
	Removed []string
	// Kept are the paths of files of previous runs that were modified since, and not removed.
	Kept []string
}

// Write writes files with mode 0600 below dir, and removes files of previous calls for the same owner that are not
// among them. It removes only regular files inside dir that are unmodified since Write wrote them, and no files of
// other owners. If it would have to replace a file that it did not write, or that was modified since, it writes
// nothing: such a file may be encrypted, and its replacement has the keys in plain text.
//
// While Write runs, the list contains both previous and new files, so that a call after an interrupted one knows all of
// them.
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
		return Result{}, clierr.New(clierr.Failed,
			"restore the file. If you delete it, files of previous runs are not removed", "read %s: %w", listFile, err)
	}
	both := before.union(now)
	missing, err := toWrite(root, both, files)
	if err != nil {
		return Result{}, err
	}
	if err := atomicfile.Write(listFile, both.encode(), 0o600); err != nil {
		return Result{}, err
	}
	if err := writeAll(root, missing); err != nil {
		return Result{}, err
	}
	res, kept, err := prune(root, before, now)
	if err != nil {
		return Result{}, err
	}
	return res, atomicfile.Write(listFile, now.union(kept).encode(), 0o600)
}

// toWrite returns the files that are not in the directory yet. It fails if the directory has others at their paths,
// which the list does not know.
func toWrite(root *os.Root, known list, files []File) ([]File, error) {
	var missing []File
	var theirs []string
	for _, f := range files {
		if err := noLink(root, filepath.Dir(f.Path)); err != nil {
			return nil, err
		}
		if isWritten(root, f.Path, f.Data) {
			continue
		}
		found, err := known.state(root, filepath.ToSlash(f.Path))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Join(root.Name(), f.Path), err)
		}
		if found == changed {
			theirs = append(theirs, filepath.Join(root.Name(), f.Path))
		}
		missing = append(missing, f)
	}
	if len(theirs) > 0 {
		return nil, clierr.New(clierr.Failed,
			"use an empty directory, or remove these files first. If they are encrypted, encrypt the new ones, too",
			"kcpctl did not write these files, or they were changed since: %s. Nothing was written to %s",
			strings.Join(theirs, ", "), root.Name())
	}
	return missing, nil
}

func writeAll(root *os.Root, files []File) error {
	var g errgroup.Group
	g.SetLimit(4 * runtime.GOMAXPROCS(0)) // writes wait for the disk
	for _, f := range files {
		g.Go(func() error {
			if err := root.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
				return err
			}
			return atomicfile.WriteIn(root, f.Path, f.Data, 0o600)
		})
	}
	return g.Wait()
}

// noLink refuses a directory that is a symbolic link, or is below one: files would appear elsewhere. A Root follows
// links whose targets are inside it.
func noLink(root *os.Root, dir string) error {
	for ; dir != "."; dir = filepath.Dir(dir) {
		info, err := root.Lstat(dir)
		if err == nil && info.Mode().Type() == fs.ModeSymlink {
			return clierr.New(clierr.BadInput, "remove the link, or choose another directory",
				"%s is a symbolic link: nothing is written through it",
				filepath.Join(root.Name(), dir))
		}
	}
	return nil
}

// isWritten reports whether a file is already up to date. Reading is faster than a synchronous write.
func isWritten(root *os.Root, path string, data []byte) bool {
	info, err := root.Lstat(path)
	if err != nil || info.Mode() != 0o600 || info.Size() != int64(len(data)) {
		return false
	}
	is, err := root.ReadFile(path)
	return err == nil && bytes.Equal(is, data)
}

// prune removes the files that are in before and not in now. Modified files are kept in the returned list, so that they
// are reported again.
func prune(root *os.Root, before, now list) (Result, list, error) {
	var res Result
	kept := list{}
	for _, path := range before.paths() {
		if _, ok := now[path]; ok {
			continue
		}
		found, err := before.state(root, path)
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

// removeEmpty removes the parent directories of a removed file that are empty.
func removeEmpty(root *os.Root, path string) {
	for dir := filepath.Dir(filepath.FromSlash(path)); dir != "."; dir = filepath.Dir(dir) {
		if info, err := root.Lstat(dir); err != nil || !info.IsDir() || root.Remove(dir) != nil {
			return // Remove fails if the directory is not empty
		}
	}
}

type state int

const (
	gone state = iota
	unchanged
	changed
)

// state compares the file at a path with the list. Anything but a regular file counts as changed.
func (l list) state(root *os.Root, path string) (state, error) {
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

// listName is the name of an owner's list. Tools that apply a directory of manifests ignore its suffix.
func listName(owner string) string { return ".kcpctl-" + owner + ".sha256" }
