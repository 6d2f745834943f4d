// Package disk writes the files that kcpctl keeps on this machine, and adds a next step to errors of the file system.
package disk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kcpctl/kcpctl/internal/kit/atomicfile"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/format"
)

// Environment variables that move a directory of the user.
const (
	StateHome = "XDG_STATE_HOME"
	CacheHome = "XDG_CACHE_HOME"
)

// Explain adds a next step to an error of a full or read-only disk; variable moves the directory. It returns other
// errors unchanged. With another state directory, a second kcp would start beside one that exists.
func Explain(err error, variable string) error {
	hint := ""
	switch full := IsFull(err); {
	case err == nil:
		return nil
	case full && variable == StateHome:
		hint = "free some space, and rerun the command"
	case full:
		hint = fmt.Sprintf("free some space, or set %s to a directory on another disk, and rerun the command", variable)
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		hint = fmt.Sprintf("set %s to a directory that you can write to", variable)
		if variable == StateHome {
			hint = "make the state directory writable; before the first kcpctl up, you can also " + hint
		}
	default:
		return err
	}
	return &clierr.Error{Err: err, Code: clierr.Failed, Hint: hint}
}

// IsFull reports whether an error is one of a full disk.
func IsFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// WriteState atomically replaces a file of the state directory, and creates missing directories. Only its owner can
// read it.
func WriteState(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return Explain(err, StateHome)
	}
	return Explain(atomicfile.Write(path, content, 0o600), StateHome)
}

// WriteJSON replaces a file of the state directory by a value, as JSON. It keeps the fields of the previous content
// that only a later kcpctl knows. An invalid previous content is replaced.
func WriteJSON[T any](path string, value T) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	previous, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if kept, err := format.Keep[T](previous, raw); err == nil {
		raw = kept
	}
	var same bytes.Buffer
	if json.Compact(&same, previous) == nil && bytes.Equal(raw, same.Bytes()) {
		return nil
	}
	return WriteState(path, raw)
}

// RemoveEmpty removes a directory if it is empty. It does not remove a symbolic link, as os.Remove would whatever is in
// the directory: users move data to another disk, and leave a link.
func RemoveEmpty(dir string) {
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		_ = os.Remove(dir) // fails if it is not empty
	}
}

// RemoveState removes a file of the state directory, if it exists.
func RemoveState(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Explain(err, StateHome)
	}
	return nil
}
