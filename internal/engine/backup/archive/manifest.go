// Package archive holds backups: what is in them, and where they are kept. A backup is a directory with a manifest,
// which is written last: without one, the backup does not exist.
package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup/content"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Format is the version of the format. A kcpctl reads this one and earlier ones.
const Format = 1

// The files of a backup.
const (
	FileManifest = "manifest.json"
	FileSetup    = "setup.yaml"
	FileRecord   = "installation.json"
	// FileKeys holds the PKI, encrypted.
	FileKeys     = "keys.tar.age"
	dirDatabases = "etcd"
)

// timeFormat is the time in the name of a backup, in UTC. A random part follows it.
const timeFormat = "20060102T150405Z"

// Manifest describes a backup.
type Manifest struct {
	Format int `json:"format"`
	// Name is the name of the setup, and the time.
	Name string `json:"name"`
	// Setup and Installation are the name of the setup and the ID of the installation.
	Setup        string `json:"setup"`
	Installation string `json:"installation"`
	// Created is when it was taken, and Kcpctl the release that took it.
	Created time.Time `json:"created"`
	Kcpctl  string    `json:"kcpctl"`
	// Databases are the snapshots, and Skew is the time between the first and the last of them.
	Databases []Database    `json:"databases"`
	Skew      time.Duration `json:"skewNanoseconds"`
	// Partial are the shards of the installation without a snapshot, with the reason.
	Partial map[string]string `json:"partial,omitempty"`
	// Recipients are the public keys that the PKI is encrypted to. Without any, the backup has no keys.
	Recipients []string `json:"recipients,omitempty"`
	// Tears are what does not fit together, as found when the backup was taken.
	Tears []content.Tear `json:"tears,omitempty"`
	// Files are the sizes and digests of all other files, by name.
	Files map[string]File `json:"files"`
}

// File is a file of a backup.
type File struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Database is the snapshot of an etcd.
type Database struct {
	// Component is the shard, and Shard its name in kcp.
	Component topology.ID `json:"component"`
	Shard     string      `json:"shard"`
	// Etcd is the etcd that was read: "managed etcd/alpha", "embedded etcd".
	Etcd string `json:"etcd"`
	// EtcdVersion and Kcp are the releases.
	EtcdVersion string `json:"etcdVersion,omitempty"`
	Kcp         string `json:"kcp"`
	// Prefix begins all keys of the shard.
	Prefix string `json:"prefix"`
	// File is the compressed snapshot, and Size its size when it is not compressed.
	File string `json:"file"`
	Size int64  `json:"size"`
	// Doubt is why it may lack the last writes: the etcd had no majority.
	Doubt string `json:"doubt,omitempty"`
	// Began is when the etcd fixed the state, and Ended when it was read.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Revision is the last revision, Keys are the keys that exist, and LogicalClusters the logical clusters of users.
	Revision        int64 `json:"revision"`
	Keys            int   `json:"keys"`
	LogicalClusters int   `json:"logicalClusters"`
}

// Name returns a name for a backup of a setup. Two that begin in the same second have different names.
func Name(setup string, at time.Time) string {
	return setup + "-" + at.UTC().Format(timeFormat) + "-" + rand.String(5)
}

// DatabaseFile returns the name of the snapshot of a component.
func DatabaseFile(id topology.ID) string {
	return path.Join(dirDatabases, strings.ReplaceAll(string(id), "/", "-")+".db.gz")
}

// Complete reports whether the backup has all shards and the keys, so that it can bring back the installation as it
// was.
func (m *Manifest) Complete() bool {
	return len(m.Partial) == 0 && len(m.Recipients) > 0 && len(m.Doubtful()) == 0
}

// Doubtful returns the reasons why snapshots may lack the last writes.
func (m *Manifest) Doubtful() []string {
	var out []string
	for _, d := range m.Databases {
		if d.Doubt != "" {
			out = append(out, d.Shard+": "+d.Doubt)
		}
	}
	return out
}

// Has reports whether the backup has a snapshot of a component.
func (m *Manifest) Has(id topology.ID) bool {
	return slices.ContainsFunc(m.Databases, func(d Database) bool { return d.Component == id })
}

// Bytes returns the size of all files.
func (m *Manifest) Bytes() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Write writes the manifest, which completes the backup.
func (m *Manifest) Write(ctx context.Context, to Target) error {
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return to.Put(ctx, path.Join(m.Name, FileManifest), bytes.NewReader(append(raw, '\n')))
}

// Load reads the manifest of a backup.
func Load(ctx context.Context, from Target, name string) (*Manifest, error) {
	r, err := from.Get(ctx, path.Join(name, FileManifest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, clierr.New(clierr.BadInput, "kcpctl backup list shows the backups",
			"%s has no complete backup %q", from, name)
	}
	if err != nil {
		return nil, fmt.Errorf("read the manifest of %s: %w", name, err)
	}
	raw, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("read the manifest of %s: %w", name, err)
	}
	m := &Manifest{}
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("the manifest of %s: %w: %w", name, ErrDamaged, err)
	}
	if m.Format > Format {
		return nil, clierr.New(clierr.BadInput, "use a newer kcpctl",
			"backup %s has format %d, and this kcpctl reads formats up to %d", name, m.Format, Format)
	}
	if m.Format < 1 || m.Name != name {
		return nil, fmt.Errorf("the manifest of %s: %w: it describes %q", name, ErrDamaged, m.Name)
	}
	return m, nil
}

// ErrDamaged means that a backup is not what was written.
var ErrDamaged = errors.New("damaged")

// Listed are the backups in a target.
type Listed struct {
	// Complete are the backups, oldest first.
	Complete []*Manifest
	// Unusable is why the others cannot be used, by name: they were interrupted, are damaged, or are of a later kcpctl.
	Unusable map[string]error
}

// Why a backup without a manifest cannot be used.
var (
	errInterrupted = errors.New("it was interrupted")
	errUnreadable  = errors.New("its directory cannot be read")
)

// List returns the backups in a target.
func List(ctx context.Context, from Target) (*Listed, error) {
	entries, err := from.List(ctx, "")
	if err != nil {
		return nil, err
	}
	out := &Listed{Unusable: map[string]error{}}
	sizes := map[string]int64{}
	for _, e := range entries {
		sizes[e.Name] = e.Size
		name, file, _ := strings.Cut(e.Name, "/")
		switch {
		case !IsName(name):
		case file == "":
			out.Unusable[name] = errUnreadable
		default:
			out.Unusable[name] = errInterrupted
		}
	}
	for _, e := range entries {
		name, file, _ := strings.Cut(e.Name, "/")
		if file != FileManifest || !IsName(name) {
			continue
		}
		m, err := Load(ctx, from, name)
		if err == nil {
			err = m.filesAre(sizes)
		}
		if err != nil {
			out.Unusable[name] = err
			continue
		}
		delete(out.Unusable, name)
		out.Complete = append(out.Complete, m)
	}
	slices.SortFunc(out.Complete, func(a, b *Manifest) int { return a.Created.Compare(b.Created) })
	return out, nil
}

// filesAre fails unless a target has all files of the backup, in their sizes. A copy that was interrupted can have the
// manifest without them.
func (m *Manifest) filesAre(sizes map[string]int64) error {
	for _, file := range slices.Sorted(maps.Keys(m.Files)) {
		size, exists := sizes[path.Join(m.Name, file)]
		switch want := m.Files[file].Size; {
		case !exists:
			return fmt.Errorf("%w: %s is missing", ErrDamaged, file)
		case size != want:
			return fmt.Errorf("%w: %s has %d bytes instead of %d", ErrDamaged, file, size, want)
		}
	}
	return nil
}

// IsName reports whether a backup can have this name.
func IsName(name string) bool {
	matches := regexp.MustCompile(`^.+-(\d{8}T\d{6}Z)(-[a-z0-9]+)?$`).FindStringSubmatch(name)
	if matches == nil {
		return false
	}
	_, err := time.Parse(timeFormat, matches[1])
	return err == nil
}

// Delete deletes a backup: first the manifest, so that an interruption leaves an incomplete one. It does not delete a
// backup in a directory if a part of it is a symbolic link.
func Delete(ctx context.Context, from Target, name string) error {
	if d, ok := from.(directory); ok {
		if err := d.owned(name); err != nil {
			return err
		}
	}
	if err := from.Delete(ctx, path.Join(name, FileManifest)); err != nil {
		return err
	}
	entries, err := from.List(ctx, name+"/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := from.Delete(ctx, e.Name); err != nil {
			return err
		}
	}
	return nil
}

// FileOf describes a file with some content.
func FileOf(raw []byte) File {
	sum := sha256.Sum256(raw)
	return File{int64(len(raw)), hex.EncodeToString(sum[:])}
}
