// Package atomicfile replaces files atomically: a reader sees the old content or the new one, also after a crash.
package atomicfile

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the content of the file at path. The file gets this mode, whatever the old one had; until it has its
// name, only its owner can read it. Root keeps the owner of a
// user's own file. A symbolic link at path is replaced, not followed. The directory must exist.
func Write(path string, data []byte, mode fs.FileMode) error {
	return WriteFrom(path, bytes.NewReader(data), mode)
}

// WriteIn is Write for a file in a directory: no symbolic link leads it out of there.
func WriteIn(root *os.Root, path string, data []byte, mode fs.FileMode) error {
	return write(root, path, path, bytes.NewReader(data), mode)
}

// WriteFrom is Write with content from a reader.
func WriteFrom(path string, content io.Reader, mode fs.FileMode) error {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer root.Close() //nolint:errcheck // nothing was written to the directory itself
	return write(root, filepath.Base(path), path, content, mode)
}

// write replaces a file in a directory. shown is its path in errors.
func write(root *os.Root, path, shown string, content io.Reader, mode fs.FileMode) error {
	old, err := root.Lstat(path)
	if err == nil && !old.Mode().IsRegular() && old.Mode().Type() != fs.ModeSymlink {
		return &fs.PathError{Op: "write", Path: shown, Err: errors.New("not a regular file")}
	}
	name := filepath.Join(filepath.Dir(path), ".kcpctl-"+rand.Text())
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		if failed, ok := errors.AsType[*fs.PathError](err); ok { // of a file that no user knows
			err = failed.Err
		}
		return fmt.Errorf("write %s: %w", shown, err)
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if dir, errDir := root.Stat(filepath.Dir(path)); err == nil && errDir == nil && old != nil {
		keepOwner(f, old, dir)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(name, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", shown, errors.Join(err, root.Remove(name)))
	}
	return nil
}
