package pki

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Forget deletes certificates and their keys.
func (d *Directory) Forget(_ context.Context, keys []LeafKey) error {
	leaves := map[LeafKey]Pair{}
	for _, k := range keys {
		leaves[k] = Pair{}
	}
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for name := range encodeFiles(&State{Leaves: leaves}) {
		if !isLeaf(name) {
			continue
		}
		if err := os.Remove(filepath.Join(d.dir, filepath.FromSlash(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete a certificate: %w", err)
		}
		delete(d.loaded, name)
	}
	return nil
}
