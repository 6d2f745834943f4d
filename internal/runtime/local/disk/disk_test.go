package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func TestExplain(t *testing.T) {
	for name, tc := range map[string]struct {
		err  syscall.Errno
		hint string
	}{
		"disk full": {syscall.ENOSPC, "free some space"},
		"quota":     {syscall.EDQUOT, "free some space"},
		"read-only": {syscall.EROFS, "that you can write to"},
		"forbidden": {syscall.EACCES, "that you can write to"},
		"other":     {syscall.EIO, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{StateHome, CacheHome} {
				err := Explain(&os.PathError{Op: "write", Path: "/state/x", Err: tc.err}, variable)
				require.ErrorIs(t, err, tc.err)
				require.ErrorContains(t, err, "/state/x")
				require.Contains(t, clierr.Hint(err), tc.hint)
				if tc.hint == "" {
					require.Empty(t, clierr.Hint(err))
					continue
				}
				hint := clierr.Hint(err)
				if tc.hint == "free some space" { // a second kcp would start in another state directory
					require.Equal(t, variable == CacheHome, strings.Contains(hint, variable), hint)
					continue
				}
				require.Contains(t, hint, variable)
				require.Equal(t, variable == StateHome, strings.Contains(hint, "before the first kcpctl up"), hint)
			}
		})
	}
	require.NoError(t, Explain(nil, StateHome))
}

func TestWriteStateReplacesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	require.NoError(t, WriteState(path, []byte("old")))
	reader, err := os.Open(path)
	require.NoError(t, err)
	defer reader.Close()
	require.NoError(t, WriteState(path, []byte("new")))
	old := make([]byte, 3)
	_, err = reader.Read(old)
	require.NoError(t, err)
	require.Equal(t, "old", string(old), "a reader of the old file keeps reading it")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1)

	require.NoError(t, RemoveState(path))
	require.NoError(t, RemoveState(path), "it is gone already")
}

func TestRemoveEmpty(t *testing.T) {
	dir := t.TempDir()
	full, empty, link := filepath.Join(dir, "full"), filepath.Join(dir, "empty"), filepath.Join(dir, "link")
	require.NoError(t, WriteState(filepath.Join(full, "file"), nil))
	require.NoError(t, os.Mkdir(empty, 0o700))
	require.NoError(t, os.Symlink(full, link))
	for _, path := range []string{full, empty, link, filepath.Join(dir, "none")} {
		RemoveEmpty(path)
	}
	require.FileExists(t, filepath.Join(link, "file"))
	require.NoDirExists(t, empty)
}

func TestFieldsOfALaterKcpctlSurvive(t *testing.T) {
	type state struct {
		Base int `json:"base"`
	}
	path := filepath.Join(t.TempDir(), "demo", "ports.json")
	require.NoError(t, WriteState(path, []byte("{\n  \"base\": 1,\n  \"later\": true\n}")))
	require.NoError(t, WriteJSON(path, state{2}))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.JSONEq(t, `{"base":2,"later":true}`, string(raw))
	require.NoError(t, WriteState(path, []byte("{")))
	require.NoError(t, WriteJSON(path, state{3}), "what cannot be read is replaced")
}
