package pki

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// ErrChanged says that a PKI is not what it was when it was loaded: another run was faster.
var ErrChanged = errors.New("the PKI was changed by another run")

// The layout of a directory store: ca/server.crt, ca/server.key, ca/server.bundle, service-account/sa.key,
// service-account/sa.pub, ca/installation.json, leaves/<cluster>/<secret>.crt and .key.
const (
	dirCA             = "ca"
	dirServiceAccount = "service-account"
	dirLeaves         = "leaves"
	// noCluster is the folder of the certificates of this machine: no cluster is called so.
	noCluster = "_"
)

// Directory keeps a PKI, its leaves included, in files that only their owner can read.
type Directory struct {
	dir string
	// loaded are the files as Load found them, by path: what Save may replace.
	loaded map[string][]byte
	// crash makes tests fail before a step that changes the disk.
	crash func(step string) error
	// sync waits until a file is on the disk. Tests, which do not lose power, do without.
	sync func(*os.File) error
}

// DirectoryStore returns the store in a directory, which Save makes.
func DirectoryStore(dir string) *Directory { return &Directory{dir: dir, sync: (*os.File).Sync} }

func (d *Directory) String() string { return "directory " + d.dir }

// Load reads the directory. Folders that nobody made yet are empty.
func (d *Directory) Load(ctx context.Context) (*State, error) {
	files, err := d.read(ctx)
	if err != nil {
		return nil, err
	}
	s, err := d.decode(files)
	if err != nil {
		return nil, err
	}
	d.loaded = files
	return s, nil
}

// Save writes what is new. A run that was interrupted at any moment leaves the state before it or the state after it.
func (d *Directory) Save(ctx context.Context, s *State) error {
	want := encodeFiles(s)
	changed, err := d.changes(ctx, want)
	if err != nil || len(changed) == 0 && !d.interrupted() { // nothing to write needs no right to write
		return err
	}
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if changed, err = d.changes(ctx, want); err != nil {
		return err
	}
	if err := d.commit(changed); err != nil {
		return fmt.Errorf("save the PKI in %s: %w", d.dir, err)
	}
	d.loaded = want
	return nil
}

// changes returns the files that are not as they should be. What is no leaf must be as it was loaded.
func (d *Directory) changes(ctx context.Context, want map[string][]byte) (map[string][]byte, error) {
	have, err := d.read(ctx)
	if err != nil {
		return nil, err
	}
	changed := map[string][]byte{}
	for name, data := range want {
		if bytes.Equal(have[name], data) {
			continue
		}
		if !isLeaf(name) && !bytes.Equal(have[name], d.loaded[name]) {
			return nil, clierr.New(clierr.Conflict, "run the command again: it uses what is there now",
				"%w: %s", ErrChanged, filepath.Join(d.dir, name))
		}
		changed[name] = data
	}
	return changed, nil
}

func isLeaf(name string) bool { return strings.HasPrefix(name, dirLeaves+"/") }

// encodeFiles returns the files of a state by their slash-separated path. What an authority has no more, such as a bundle
// after a rotation, is an empty file.
func encodeFiles(s *State) map[string][]byte {
	files := map[string][]byte{}
	for ca, a := range s.CAs {
		for _, p := range a.parts(ca) {
			files[fileOf(p.key)] = *p.val
		}
	}
	sa := s.ServiceAccount
	for _, p := range sa.parts() {
		files[fileOf(p.key)] = *p.val
	}
	if raw := s.Installation.encode(); raw != nil {
		files[fileOf(keyInstallation)] = raw
	}
	for key, pair := range s.Leaves {
		base := path.Join(dirLeaves, key.Cluster, key.Secret)
		if key.Cluster == "" {
			base = path.Join(dirLeaves, noCluster, key.Secret)
		}
		files[base+".crt"], files[base+".key"] = pair.Cert, pair.Key
	}
	return files
}

// fileOf is the file of an encoded key: ca/server.crt for server-ca.crt.
func fileOf(key string) string {
	if key == keyInstallation {
		return path.Join(dirCA, key)
	}
	name, ext, _ := strings.Cut(key, ".")
	if ca, ok := strings.CutSuffix(name, "-ca"); ok {
		return path.Join(dirCA, ca+"."+ext)
	}
	return path.Join(dirServiceAccount, key)
}

// keyOf is the encoded key of a file.
func keyOf(name string) string {
	folder, base := path.Split(name)
	if folder != dirCA+"/" || base == keyInstallation {
		return base
	}
	ca, ext, _ := strings.Cut(base, ".")
	return ca + "-ca." + ext
}

func (d *Directory) decode(files map[string][]byte) (*State, error) {
	encoded := map[string][]byte{}
	for name, data := range files {
		if !isLeaf(name) {
			encoded[keyOf(name)] = data
		}
	}
	s, err := Decode(encoded)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d, err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		base, ok := strings.CutSuffix(name, ".crt")
		if key, isKey := strings.CutSuffix(name, ".key"); isKey {
			base, ok = key, true
		}
		if !ok || !isLeaf(name) {
			continue
		}
		pair := Pair{Cert: files[base+".crt"], Key: files[base+".key"]}
		if len(pair.Cert) == 0 || len(pair.Key) == 0 {
			return nil, clierr.New(clierr.BadInput, "bring the missing half back, or delete the other to have both made anew",
				"%s: the certificate or the key is missing", filepath.Join(d.dir, base))
		}
		cluster, secret := path.Split(strings.TrimPrefix(base, dirLeaves+"/"))
		key := LeafKey{Cluster: strings.TrimSuffix(cluster, "/"), Secret: secret}
		if key.Cluster == noCluster {
			key.Cluster = ""
		}
		s.Leaves[key] = pair
	}
	return s, nil
}

// read returns all files by their path within the directory. Those of an interrupted save come first: they replace the
// others, and whoever completes that save meanwhile moves them to where we look next.
func (d *Directory) read(ctx context.Context) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, root := range []string{d.journal(), d.dir} {
		for _, folder := range []string{dirCA, dirServiceAccount, dirLeaves} {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := d.readFolder(files, root, folder); err != nil {
				return nil, fmt.Errorf("read the PKI: %w", err)
			}
		}
	}
	return files, nil
}

func (d *Directory) readFolder(files map[string][]byte, root, folder string) error {
	return filepath.WalkDir(filepath.Join(root, folder), func(p string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.IsDir() || strings.HasPrefix(e.Name(), "."):
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if _, ok := files[name]; ok {
			return nil
		}
		data, err := readPrivate(p)
		if errors.Is(err, fs.ErrNotExist) && root == d.journal() {
			return nil // moved this moment
		}
		files[name] = data
		return err
	})
}

// readPrivate reads a file; a key must not be readable by others.
func readPrivate(p string) ([]byte, error) {
	info, err := os.Stat(p)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(p, ".key") && info.Mode().Perm()&0o077 != 0 {
		return nil, clierr.New(clierr.BadInput, "run chmod 600 "+p, "the private key %s can be read by others (mode %04o)", p, info.Mode().Perm())
	}
	return os.ReadFile(p)
}
