package archive_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func open(t *testing.T) (archive.Target, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "backups")
	out, err := archive.Open("file://"+dir, os.Getenv)
	require.NoError(t, err)
	return out, dir
}

func TestDirectory(t *testing.T) {
	target, dir := open(t)
	ctx := t.Context()
	all, err := target.List(ctx, "")
	require.NoError(t, err)
	require.Empty(t, all)
	require.NoError(t, target.Put(ctx, "a/etcd/b", strings.NewReader("content")))
	r, err := target.Get(ctx, "a/etcd/b")
	require.NoError(t, err)
	raw, err := io.ReadAll(r)
	require.NoError(t, errors.Join(err, r.Close()))
	require.Equal(t, "content", string(raw))
	all, err = target.List(ctx, "a/")
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "a/etcd/b", all[0].Name)
	_, err = target.Get(ctx, "a/c")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, target.Delete(ctx, "a/c"))
	require.NoError(t, target.Delete(ctx, "a/etcd/b"))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "empty directories go")
}

// A name never leads out of the directory.
func TestDirectoryIsNotLeft(t *testing.T) {
	target, dir := open(t)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	outside := filepath.Join(filepath.Dir(dir), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("other"), 0o600))
	for _, name := range []string{"../outside", "/etc/passwd", "a/../../outside", ""} {
		require.Error(t, target.Put(t.Context(), name, strings.NewReader("x")), name)
		_, err := target.Get(t.Context(), name)
		require.Error(t, err, name)
		_ = target.Delete(t.Context(), name)
	}
	raw, err := os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, "other", string(raw))
}

// A user has moved a part of a backup to another disk, and left a link: neither the link nor what it leads to is deleted.
func TestLinkedBackupsAreNotDeleted(t *testing.T) {
	for _, linked := range []string{"b", "b/etcd", "b/etcd/root.db", "b/manifest.json"} {
		t.Run(linked, func(t *testing.T) {
			target, dir := open(t)
			files := []string{"b/manifest.json", "b/etcd/root.db", "b/setup.yaml"}
			for _, name := range files {
				require.NoError(t, target.Put(t.Context(), name, strings.NewReader(name)))
			}
			at := filepath.Join(dir, filepath.FromSlash(linked))
			moved := filepath.Join(filepath.Dir(dir), "moved")
			require.NoError(t, os.Rename(at, moved))
			require.NoError(t, os.Symlink(moved, at))
			err := archive.Delete(t.Context(), target, "b")
			require.ErrorContains(t, err, "backup b is not deleted: "+at+" is a symbolic link, which kcpctl has not created")
			require.NotEmpty(t, clierr.Hint(err))
			for _, name := range files {
				if strings.HasPrefix(name, linked) {
					require.ErrorContains(t, target.Delete(t.Context(), name), "is a symbolic link")
				}
				raw, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
				require.NoError(t, err)
				require.Equal(t, name, string(raw))
			}
		})
	}
}

// A target can have directories that only others may read, and another run removes its files while they are listed.
func TestDirectoriesThatCannotBeRead(t *testing.T) {
	file := &fstest.MapFile{Data: []byte("x")}
	other := "demo-20261126T012016Z-other"
	dir := unreadable{fstest.MapFS{
		"a/manifest.json": file, "lost+found/x": file, other + "/manifest.json": file, ".kcpctl-staging-1/x": file,
		"z/manifest.json": file,
	}, map[string]error{
		"lost+found": fs.ErrPermission, other: fs.ErrPermission, ".kcpctl-staging-1": fs.ErrNotExist,
	}}
	found, err := archive.ListIn(t.Context(), dir, "")
	require.NoError(t, err)
	var names []string
	for _, e := range found {
		names = append(names, e.Name)
	}
	require.Equal(t, []string{"a/manifest.json", other + "/", "lost+found/", "z/manifest.json"}, names)
	listed, err := archive.List(t.Context(), listing{entries: found})
	require.NoError(t, err)
	require.Len(t, listed.Unusable, 1)
	require.ErrorContains(t, listed.Unusable[other], "its directory cannot be read")

	dir.errs["."] = fs.ErrPermission
	_, err = archive.ListIn(t.Context(), dir, "")
	require.ErrorIs(t, err, fs.ErrPermission, "the target itself")
}

// unreadable fails to read some directories.
type unreadable struct {
	fstest.MapFS
	errs map[string]error
}

func (u unreadable) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := u.errs[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return u.MapFS.ReadDir(name)
}

// listing is a target with some entries.
type listing struct {
	archive.Target
	entries []archive.Entry
}

func (l listing) List(context.Context, string) ([]archive.Entry, error) { return l.entries, nil }

// A file that could not be written completely does not exist.
func TestPutIsAtomic(t *testing.T) {
	target, dir := open(t)
	broken := errors.New("broken")
	err := target.Put(t.Context(), "a/b", io.MultiReader(strings.NewReader("half"), failing{broken}))
	require.ErrorIs(t, err, broken)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	require.ErrorIs(t, target.Put(ctx, "a/b", strings.NewReader("x")), broken)
	files, err := os.ReadDir(filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.Empty(t, files)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestNames(t *testing.T) {
	at := time.Date(2026, 11, 26, 1, 20, 16, 0, time.FixedZone("", 3600))
	name := archive.Name("my-kcp", at)
	require.Regexp(t, `^my-kcp-20261126T002016Z-[a-z0-9]{5}$`, name)
	require.NotEqual(t, name, archive.Name("my-kcp", at), "two backups of the same second")
	require.True(t, archive.IsName(name))
	for name, want := range map[string]bool{
		"my-kcp-20261126T002016Z": true, "my-kcp-20261126T002016Z-x7k2p": true, "my-kcp-20261326T002016Z-x7k2p": false, "demo-20261126T002016": false, "-20261126T002016Z": false, "demo": false,
		".kcpctl-staging-1": false,
	} {
		require.Equal(t, want, archive.IsName(name), name)
	}
}

func TestSealedKeys(t *testing.T) {
	mine, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	other, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	files := map[string][]byte{"server-ca.key": []byte("a private key"), "sa.key": []byte("another")}
	recipients, err := archive.Recipients([]string{mine.Recipient().String()})
	require.NoError(t, err)
	var sealed bytes.Buffer
	require.NoError(t, archive.Seal(&sealed, files, recipients, time.Now()))
	require.NotContains(t, sealed.String(), "private")
	got, err := archive.Unseal(bytes.NewReader(sealed.Bytes()), []age.Identity{other, mine})
	require.NoError(t, err)
	require.Equal(t, files, got)
	_, err = archive.Unseal(bytes.NewReader(sealed.Bytes()), []age.Identity{other})
	require.ErrorContains(t, err, "encrypted to other recipients")
	_, err = archive.Unseal(bytes.NewReader(sealed.Bytes()[:sealed.Len()-20]), []age.Identity{mine})
	require.ErrorIs(t, err, archive.ErrDamaged)
}

func TestIdentities(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "key.txt")
	require.NoError(t, os.WriteFile(file, []byte("# created by age-keygen\n"+key.String()+"\n"), 0o600))
	all, err := archive.Identities(file)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NoError(t, os.WriteFile(file, []byte("nothing"), 0o600))
	_, err = archive.Identities(file)
	require.ErrorContains(t, err, "has no private key of age")
	require.NotContains(t, err.Error(), "nothing", "its content is not printed")
}

func TestOpen(t *testing.T) {
	env := func(values map[string]string) func(string) string {
		return func(name string) string { return values[name] }
	}
	known := env(map[string]string{
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_REGION": "eu-central-1",
	})
	for url, want := range map[string]string{
		"backups": "backups", "file:///var/backups": "/var/backups", "s3://backups/kcp": "s3://backups/kcp",
		"s3://backups/kcp?endpoint=https://minio.example.com&pathStyle=true": "s3://backups/kcp",
	} {
		target, err := archive.Open(url, known)
		require.NoError(t, err, url)
		require.Equal(t, want, target.String())
	}
	for url, want := range map[string]string{
		"ftp://host/dir": "unknown target", "file://dir": "is not an absolute path",
		"s3://backups/kcp?endpiont=https://minio.example.com": "unknown parameter",
	} {
		_, err := archive.Open(url, known)
		require.ErrorContains(t, err, want, url)
		require.NotContains(t, err.Error(), "hidden")
	}
	_, err := archive.Open("s3://backups", env(map[string]string{"HOME": t.TempDir()}))
	require.Error(t, err, "there are no credentials")
}
