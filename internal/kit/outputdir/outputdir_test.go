package outputdir

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func files(content string, paths ...string) []File {
	var out []File
	for _, p := range paths {
		out = append(out, File{Path: p, Data: []byte(content)})
	}
	return out
}

func put(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

func tree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	require.NoError(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(dir, p)
			out = append(out, rel)
		}
		return err
	}))
	return out
}

func TestWriteRemovesWhatItWroteEarlier(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a/theirs.yaml"), "theirs")
	_, err := Write(dir, "demo", files("x", "a/one", "a/two", "b/c/three"))
	require.NoError(t, err)
	res, err := Write(dir, "demo", files("y", "a/one"))
	require.NoError(t, err)
	require.Equal(t, Result{Removed: []string{"a/two", "b/c/three"}}, res)
	require.Equal(t, []string{".kcpctl-demo.sha256", "a/one", "a/theirs.yaml"}, tree(t, dir))
	require.NoDirExists(t, filepath.Join(dir, "b"))
	raw, err := os.ReadFile(filepath.Join(dir, ".kcpctl-demo.sha256"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%x  a/one\n", sha256.Sum256([]byte("y"))), string(raw), "sha256sum -c can read it")

	_, err = Write(dir, "other", files("z", "o/one"))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "a/one"), "the files of another setup stay")
}

func TestWriteClosesFiles(t *testing.T) {
	dir := t.TempDir()
	_, err := Write(dir, "demo", files("key", "open"))
	require.NoError(t, err)
	require.NoError(t, os.Chmod(filepath.Join(dir, "open"), 0o644))
	_, err = Write(dir, "demo", files("key", "open"))
	require.NoError(t, err)
	info, err := os.Lstat(filepath.Join(dir, "open"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
}

// Files of others, and files that were changed, such as encrypted ones, are all named before anything is written.
func TestWriteReplacesOnlyWhatItWrote(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	put(t, outside, "outside")
	_, err := Write(dir, "demo", files("x", "encrypted", "mine"))
	require.NoError(t, err)
	put(t, filepath.Join(dir, "encrypted"), "encrypted")
	put(t, filepath.Join(dir, "theirs"), "theirs")
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	before := contents(t, dir)

	_, err = Write(dir, "demo", files("y", "encrypted", "link", "mine", "new", "theirs"))
	require.ErrorContains(t, err, fmt.Sprintf("changed since: %s, %s, %s. Nothing", filepath.Join(dir, "encrypted"),
		filepath.Join(dir, "link"), filepath.Join(dir, "theirs")))
	require.Equal(t, clierr.Failed, clierr.Code(err))
	require.Contains(t, clierr.Hint(err), "remove these files")
	require.Equal(t, before, contents(t, dir))

	for _, name := range []string{"encrypted", "link", "theirs"} {
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
	}
	_, err = Write(dir, "demo", files("y", "encrypted", "link", "mine", "new", "theirs"))
	require.NoError(t, err)
	got, err := os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, "outside", string(got))
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range tree(t, dir) {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		out[name] = string(raw)
	}
	return out
}

func TestWriteLeavesWhatIsRight(t *testing.T) {
	dir := t.TempDir()
	_, err := Write(dir, "demo", files("x", "one", "two"))
	require.NoError(t, err)
	stat := func(name string) os.FileInfo {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		return info
	}
	one, two := stat("one"), stat("two")
	_, err = Write(dir, "demo", append(files("x", "one"), files("y", "two")...))
	require.NoError(t, err)
	require.True(t, os.SameFile(one, stat("one")))
	require.False(t, os.SameFile(two, stat("two")))
}

func TestWriteKeepsWhatOthersChanged(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string){
		"another content": func(t *testing.T, path string) { put(t, path, "encrypted") },
		"a directory": func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			put(t, filepath.Join(path, "file"), "x")
		},
		"a link": func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".moved"))
			require.NoError(t, os.Symlink(filepath.Base(path)+".moved", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Write(dir, "demo", files("x", "a/one", "a/two"))
			require.NoError(t, err)
			change(t, filepath.Join(dir, "a/two"))
			for range 2 { // it is reported until a user removes it
				res, err := Write(dir, "demo", files("x", "a/one"))
				require.NoError(t, err)
				require.Equal(t, Result{Kept: []string{"a/two"}}, res)
			}
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "a/two")))
			res, err := Write(dir, "demo", files("x", "a/one"))
			require.NoError(t, err)
			require.Empty(t, res)
		})
	}
}

// A directory that was replaced with a link may lead to files that look like ours.
func TestWriteStaysInside(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	_, err := Write(dir, "demo", files("x", "a/one", "b/two"))
	require.NoError(t, err)
	require.NoError(t, os.Rename(filepath.Join(dir, "b"), filepath.Join(outside, "b")))
	require.NoError(t, os.Symlink(filepath.Join(outside, "b"), filepath.Join(dir, "b")))
	_, err = Write(dir, "demo", files("x", "a/one"))
	require.Error(t, err)
	require.FileExists(t, filepath.Join(outside, "b/two"))

	_, err = Write(dir, "demo", files("x", "../escape"))
	require.ErrorContains(t, err, "leads out of")
	require.NoFileExists(t, filepath.Join(filepath.Dir(dir), "escape"))
}

func TestWriteRefusesAListThatItDidNotWrite(t *testing.T) {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("theirs")))
	for _, line := range []string{
		sum + "  ../theirs\n", sum + "  /etc/passwd\n", sum + "  a/../../theirs\n", sum + "  .\n", sum + "  a//b\n", sum + "  \n",
		sum + " one\n", "abc  one\n", strings.Repeat("x", 64) + "  one\n", "\n", "hello\n",
	} {
		t.Run(line, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "out")
			put(t, filepath.Join(parent, "theirs"), "theirs")
			put(t, filepath.Join(dir, ".kcpctl-demo.sha256"), line)
			_, err := Write(dir, "demo", files("x", "one"))
			require.ErrorContains(t, err, ".kcpctl-demo.sha256")
			require.Contains(t, clierr.Hint(err), "delete it")
			require.FileExists(t, filepath.Join(parent, "theirs"))
			require.NoFileExists(t, filepath.Join(dir, "one"))
		})
	}
}

// After a run that was killed during a write, the list has both the previous and the new content of the file.
func TestWriteAfterAnInterruptedOne(t *testing.T) {
	for _, content := range []string{"old", "new"} {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "one"), content)
		l := list{"one": {sumOf([]byte("old")), sumOf([]byte("new"))}, "two": {sumOf([]byte("new"))}}
		put(t, filepath.Join(dir, ".kcpctl-demo.sha256"), string(l.encode()))
		_, err := Write(dir, "demo", files("new", "one"))
		require.NoError(t, err)
		res, err := Write(dir, "demo", files("x", "three"))
		require.NoError(t, err)
		require.Equal(t, Result{Removed: []string{"one"}}, res)
	}
}

// A directory that is a link leads elsewhere: nothing is written through it, whether it leads out of the directory or
// not.
func TestWriteDoesNotFollowLinks(t *testing.T) {
	for name, target := range map[string]string{"out": "../victim", "within": "other"} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			out := filepath.Join(parent, "out")
			for _, dir := range []string{filepath.Join(parent, "victim"), filepath.Join(out, "other")} {
				require.NoError(t, os.MkdirAll(dir, 0o700))
			}
			require.NoError(t, os.Symlink(target, filepath.Join(out, "default")))
			_, err := Write(out, "demo", []File{{Path: "default/pki.yaml", Data: []byte("key")}})
			require.ErrorContains(t, err, filepath.Join(out, "default")+" is a symbolic link: nothing is written through it")
			for _, file := range []string{filepath.Join(parent, "victim", "pki.yaml"), filepath.Join(out, "other", "pki.yaml")} {
				require.NoFileExists(t, file)
			}
		})
	}
}
