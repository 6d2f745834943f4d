package setup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kcpctl/kcpctl/internal/kit/atomicfile"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// CheckEditable fails if the setup file at path cannot be edited, because it is stdin.
func CheckEditable(path string) error {
	if path == Stdin {
		return clierr.New(clierr.BadInput, "specify a file with -f", "a setup from stdin cannot be edited")
	}
	return nil
}

// Rewrite replaces the file at path with an edited setup, atomically. It fails if the file was changed since it was
// read. The file keeps its mode. If path is a symbolic link, its target is replaced.
func (f *File) Rewrite(path string, edited *File) error {
	if err := CheckEditable(path); err != nil {
		return err
	}
	target, mode, err := f.unchanged(path)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(target, edited.Data, mode); err != nil {
		return fmt.Errorf("write setup %s: %w", path, err)
	}
	return nil
}

// CheckRewrite fails if Rewrite would fail now: the file was changed since it was read, or cannot be written.
func (f *File) CheckRewrite(path string) error {
	if err := CheckEditable(path); err != nil {
		return err
	}
	target, _, err := f.unchanged(path)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(target), ".kcpctl-*")
	if err != nil {
		return fmt.Errorf("write setup %s: %w", path, err)
	}
	return errors.Join(tmp.Close(), os.Remove(tmp.Name()))
}

// unchanged resolves symbolic links, and fails if the file was changed since it was read.
func (f *File) unchanged(path string) (target string, mode os.FileMode, err error) {
	if target, err = filepath.EvalSymlinks(path); err != nil {
		return "", 0, fmt.Errorf("write setup: %w", err)
	}
	info, err := os.Stat(target)
	if err != nil {
		return "", 0, fmt.Errorf("write setup: %w", err)
	}
	now, err := os.ReadFile(target)
	if err != nil {
		return "", 0, fmt.Errorf("write setup: %w", err)
	}
	if !bytes.Equal(now, f.Data) {
		return "", 0, clierr.New(clierr.Conflict, "rerun the command",
			"%s was changed while the command was running", path)
	}
	return target, info.Mode().Perm(), nil
}
