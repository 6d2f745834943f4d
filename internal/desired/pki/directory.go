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
	"runtime"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// ErrChanged is the error if another run has changed a PKI since it was loaded.
var ErrChanged = errors.New("the PKI was changed by another run")

// The layout of a directory store: ca/server.crt, ca/server.key, ca/server.bundle, service-account/sa.key,
// service-account/sa.pub, encryption/encryption.key, ca/installation.json, ca/users.json, leaves/<cluster>/<secret>.crt
// and .key.
const (
	dirCA             = "ca"
	dirServiceAccount = "service-account"
	dirEncryption     = "encryption"
	dirLeaves         = "leaves"
	// noCluster is the directory of the certificates of this machine. It is not a valid name of a cluster.
	noCluster = "_"
)

// Directory is a store that keeps a PKI, including its leaves, in files that only their owner can read.
type Directory struct {
	dir string
	// loaded holds the files as Load found them, by path. Save replaces only these.
	loaded map[string][]byte
	disk   disk
}

// DirectoryStore returns the store in a directory. Save creates the directory.
func DirectoryStore(dir string) *Directory { return &Directory{dir: dir, disk: osDisk{}} }

func (d *Directory) String() string { return "directory " + d.dir }

// Load reads the directory. A missing directory is an empty store.
func (d *Directory) Load(ctx context.Context) (*State, error) {
	if err := ownDirectory(d.dir); err != nil {
		return nil, err
	}
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

// Save writes the files that changed. If it is interrupted, the directory holds either the previous state or the new
// one.
func (d *Directory) Save(ctx context.Context, s *State) error {
	if err := ownDirectory(d.dir); err != nil {
		return err
	}
	want := encodeFiles(s)
	changed, err := d.changes(ctx, want)
	if err != nil || len(changed) == 0 && !d.interrupted() { // without changes, no write permission is needed
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

// changes returns the files to write. Files that are not leaves must not have changed since they were loaded.
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
			return nil, clierr.New(clierr.Conflict, "rerun the command: it uses the current PKI",
				"%w: %s", ErrChanged, filepath.Join(d.dir, name))
		}
		changed[name] = data
	}
	return changed, nil
}

// DeleteLeaves deletes certificates and their keys.
func (d *Directory) DeleteLeaves(_ context.Context, keys []LeafKey) error {
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
		if err := os.Remove(filepath.Join(d.dir, filepath.FromSlash(name))); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete a certificate: %w", err)
		}
		delete(d.loaded, name)
	}
	return nil
}

func isLeaf(name string) bool { return strings.HasPrefix(name, dirLeaves+"/") }

// encodeFiles returns the files of a state by their slash-separated path. A part that an authority no longer has, such
// as a bundle after a rotation, is an empty file.
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
	for key, raw := range s.documents() {
		files[fileOf(key)] = raw
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

// fileOf returns the file of an encoded key: ca/server.crt for server-ca.crt.
func fileOf(key string) string {
	switch key {
	case keyInstallation, keyUsers:
		return path.Join(dirCA, key)
	case keyEncryption:
		return path.Join(dirEncryption, key)
	}
	name, ext, _ := strings.Cut(key, ".")
	if ca, ok := strings.CutSuffix(name, "-ca"); ok {
		return path.Join(dirCA, ca+"."+ext)
	}
	return path.Join(dirServiceAccount, key)
}

// encodedKey returns the encoded key of a file: the inverse of fileOf.
func encodedKey(name string) string {
	dir, base := path.Split(name)
	if dir != dirCA+"/" || base == keyInstallation || base == keyUsers {
		return base
	}
	ca, ext, _ := strings.Cut(base, ".")
	return ca + "-ca." + ext
}

func (d *Directory) decode(files map[string][]byte) (*State, error) {
	encoded := map[string][]byte{}
	for name, data := range files {
		if !isLeaf(name) {
			encoded[encodedKey(name)] = data
		}
	}
	s, err := Decode(encoded)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d, err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		base, ok := strings.CutSuffix(name, ".crt")
		if of, isKey := strings.CutSuffix(name, ".key"); isKey {
			base, ok = of, true
		}
		if !ok || !isLeaf(name) {
			continue
		}
		cert, hasCert := files[base+".crt"]
		key, hasKey := files[base+".key"]
		switch {
		case len(cert) > 0 && len(key) > 0:
		case hasCert && hasKey: // empty after a power failure: it is issued again
			continue
		default:
			return nil, clierr.New(clierr.BadInput,
				"restore the missing file, or delete the other one: both are then issued again",
				"%s: the certificate or the key is missing", filepath.Join(d.dir, base))
		}
		cluster, secret := path.Split(strings.TrimPrefix(base, dirLeaves+"/"))
		leaf := LeafKey{Cluster: strings.TrimSuffix(cluster, "/"), Secret: secret}
		if leaf.Cluster == noCluster {
			leaf.Cluster = ""
		}
		s.Leaves[leaf] = Pair{Cert: cert, Key: key}
	}
	return s, nil
}

// read returns all files by their path within the directory. Files of an interrupted save are read first: they replace
// the others, and another run that completes that save at the same time moves them to the directory that is read next.
func (d *Directory) read(ctx context.Context) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, root := range []string{d.journal(), d.dir} {
		for _, dir := range []string{dirCA, dirServiceAccount, dirEncryption, dirLeaves} {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := d.readFiles(files, root, dir); err != nil {
				return nil, fmt.Errorf("read the PKI: %w", err)
			}
		}
	}
	return files, nil
}

func (d *Directory) readFiles(files map[string][]byte, root, dir string) error {
	return filepath.WalkDir(filepath.Join(root, dir), func(p string, e fs.DirEntry, err error) error {
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
			return nil // another run has just moved it
		}
		files[name] = data
		return err
	})
}

// othersCan reports whether the mode of a file has one of these bits. Windows has access lists instead of modes, which
// files inherit from their directory.
func othersCan(info fs.FileInfo, bits fs.FileMode) bool {
	return runtime.GOOS != "windows" && info.Mode().Perm()&bits != 0
}

// ownDirectory refuses a directory in which other users can replace files, or whole subdirectories.
func ownDirectory(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && othersCan(info, 0o022) {
		return clierr.New(clierr.BadInput, "run chmod go-w "+dir,
			"other users can replace the keys in %s (mode %04o)", dir, info.Mode().Perm())
	}
	return err
}

// readPrivate reads a file. It refuses a private key that other users can read.
func readPrivate(p string) ([]byte, error) {
	info, err := os.Stat(p)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(p, ".key") && othersCan(info, 0o077) {
		return nil, clierr.New(clierr.BadInput, "run chmod 600 "+p,
			"other users can read the private key %s (mode %04o)", p, info.Mode().Perm())
	}
	return os.ReadFile(p)
}
