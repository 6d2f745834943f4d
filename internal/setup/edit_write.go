package setup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kcpctl/kcpctl/internal/atomicfile"
	"github.com/kcpctl/kcpctl/internal/clierr"
)

// CheckEditable tells why the setup file at path cannot be written.
func CheckEditable(path string) error {
	if path == Stdin {
		return clierr.New(clierr.BadInput, "name a file with -f", "a setup from stdin cannot be edited")
	}
	return nil
}

// Rewrite puts an edited setup in the place of the file at path, which still has to be what was read. Whoever reads the file
// sees all of the old text or all of the new. The file keeps its mode; of a symbolic link, the file that it leads to is
// written.
func (f *File) Rewrite(path string, edited *File) error {
	if err := CheckEditable(path); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("write setup: %w", err)
	}
	info, err := os.Stat(target)
	if err != nil {
		return fmt.Errorf("write setup: %w", err)
	}
	now, err := os.ReadFile(target)
	if err != nil {
		return fmt.Errorf("write setup: %w", err)
	}
	if !bytes.Equal(now, f.Data) {
		return clierr.New(clierr.Conflict, "run the command again", "%s was changed by somebody else meanwhile", path)
	}
	if err := atomicfile.Write(target, edited.Data, info.Mode().Perm()); err != nil {
		return fmt.Errorf("write setup: %w", err)
	}
	return nil
}
