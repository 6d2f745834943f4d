package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/kcpctl/kcpctl/internal/kit/filelock"
)

// A save writes its files to a staging directory, and commits them by renaming that directory to the journal. It then
// moves them to their places. If it is interrupted, the next run completes the moves: the store never holds half of a
// PKI.
const (
	dirStaging = ".saving"
	dirJournal = ".saved"
	fileLock   = ".lock"
)

// disk is everything that a save changes in a file system. It is an interface so that tests can interrupt a save
// anywhere.
type disk interface {
	// create writes a new file, and its directories. With sync, the content is on the disk when it returns.
	create(path string, data []byte, sync bool) error
	// rename moves a file or a directory, and creates the directories of the new path.
	rename(from, to string) error
	removeAll(path string) error
	// syncDirs returns when the entries of directories are on the disk. It ignores missing directories.
	syncDirs(dirs ...string) error
}

// osDisk is the file system of this machine.
type osDisk struct{}

func (d *Directory) staging() string { return filepath.Join(d.dir, dirStaging) }
func (d *Directory) journal() string { return filepath.Join(d.dir, dirJournal) }

// interrupted reports whether a committed save was not completed.
func (d *Directory) interrupted() bool {
	_, err := os.Stat(d.journal())
	return err == nil
}

// lock prevents other runs on this machine from saving at the same time. The kernel releases it when the process ends.
func (d *Directory) lock() (unlock func(), err error) {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of the PKI: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(d.dir, fileLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the PKI: %w", err)
	}
	if err := filelock.Lock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the PKI: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil // closing unlocks
}

// commit writes all files or none.
func (d *Directory) commit(files map[string][]byte) error {
	if err := d.replay(); err != nil {
		return err
	}
	if len(files) == 0 {
		return nil
	}
	if err := d.disk.removeAll(d.staging()); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(d.staging(), filepath.FromSlash(name))
		if err := d.disk.create(path, files[name], !isLeaf(name)); err != nil {
			return err
		}
	}
	err := d.disk.syncDirs(d.staging(), filepath.Join(d.staging(), dirCA),
		filepath.Join(d.staging(), dirServiceAccount), filepath.Join(d.staging(), dirEncryption))
	if err != nil {
		return err
	}
	if err := d.disk.rename(d.staging(), d.journal()); err != nil {
		return err
	}
	if err := d.disk.syncDirs(d.dir); err != nil {
		return err
	}
	return d.replay()
}

// replay moves committed files to their places: a directory that the store does not have as a whole, the files of
// others one by one.
func (d *Directory) replay() error {
	err := filepath.WalkDir(d.journal(), func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == d.journal() {
			return err
		}
		rel, err := filepath.Rel(d.journal(), p)
		if err != nil {
			return err
		}
		to := filepath.Join(d.dir, rel)
		if !e.IsDir() {
			return d.disk.rename(p, to)
		}
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := d.disk.rename(p, to); err != nil {
			return err
		}
		return fs.SkipDir
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.disk.removeAll(d.journal())
}

func (osDisk) create(path string, data []byte, sync bool) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (osDisk) rename(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.Rename(from, to)
}

func (osDisk) removeAll(path string) error { return os.RemoveAll(path) }

func (osDisk) syncDirs(dirs ...string) error {
	if runtime.GOOS == "windows" { // directories cannot be flushed there: NTFS has a journal of its entries
		return nil
	}
	for _, dir := range dirs {
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
