package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// A save writes its files into a folder beside the others, and commits them by renaming that folder. Only then are they
// moved to their places, which the next run completes if this one cannot: no moment exists at which half a PKI is there.
const (
	folderStaging = ".saving"
	folderJournal = ".saved"
	fileLock      = ".lock"
)

func (d *Directory) staging() string { return filepath.Join(d.dir, folderStaging) }
func (d *Directory) journal() string { return filepath.Join(d.dir, folderJournal) }

// interrupted tells whether a committed save is not completed yet.
func (d *Directory) interrupted() bool {
	_, err := os.Stat(d.journal())
	return err == nil
}

// step runs one change of the disk.
func (d *Directory) step(name string, do func() error) error {
	if d.crash != nil {
		if err := d.crash(name); err != nil {
			return err
		}
	}
	return do()
}

// lock keeps other runs on this machine from saving at the same time. It ends with the process, however that ends.
func (d *Directory) lock() (unlock func(), err error) {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the PKI's directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(d.dir, fileLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the PKI: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the PKI: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil // closing unlocks
}

// commit writes files so that all of them are there, or none.
func (d *Directory) commit(files map[string][]byte) error {
	if err := d.replay(); err != nil {
		return err
	}
	if len(files) == 0 {
		return nil
	}
	if err := d.step("discard", func() error { return os.RemoveAll(d.staging()) }); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		p := filepath.Join(d.staging(), filepath.FromSlash(name))
		if err := d.step("write "+name, func() error { return d.writeFile(p, files[name], !isLeaf(name)) }); err != nil {
			return err
		}
	}
	commit := func() error {
		if err := d.syncDirs(d.staging(), filepath.Join(d.staging(), dirCA), filepath.Join(d.staging(), dirServiceAccount)); err != nil {
			return err
		}
		return os.Rename(d.staging(), d.journal())
	}
	if err := d.step("commit", commit); err != nil {
		return err
	}
	if err := d.syncDirs(d.dir); err != nil {
		return err
	}
	return d.replay()
}

// replay moves committed files to their places.
func (d *Directory) replay() error {
	err := filepath.WalkDir(d.journal(), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(d.journal(), p)
		if err != nil {
			return err
		}
		to := filepath.Join(d.dir, rel)
		return d.step("move "+rel, func() error {
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return err
			}
			return os.Rename(p, to)
		})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.step("finish", func() error { return os.RemoveAll(d.journal()) })
}

// writeFile makes a new file. What cannot be made again is on the disk when it returns.
func (d *Directory) writeFile(p string, data []byte, sync bool) error {
	if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = d.sync(f)
	}
	return errors.Join(err, f.Close())
}

// syncDirs waits until the names in some folders are on the disk.
func (d *Directory) syncDirs(dirs ...string) error {
	for _, dir := range dirs {
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(d.sync(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
