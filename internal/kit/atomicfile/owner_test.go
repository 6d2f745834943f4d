//go:build unix

package atomicfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Users who run kcpctl with sudo can still read their kubeconfig.
func TestRootKeepsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root writes files of other users")
	}
	for name, tc := range map[string]struct {
		dir  int
		want []uint32
	}{
		"in a directory of the user":      {12345, []uint32{12345, 12346}},
		"in a directory for all":          {0, []uint32{0, 0}},
		"in a directory of another owner": {23456, []uint32{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "config")
			require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
			require.NoError(t, os.Chown(path, 12345, 12346))
			require.NoError(t, os.Chown(dir, tc.dir, tc.dir))
			require.NoError(t, Write(path, []byte("new"), 0o600))
			info, err := os.Stat(path)
			require.NoError(t, err)
			st := info.Sys().(*syscall.Stat_t)
			require.Equal(t, tc.want, []uint32{st.Uid, st.Gid})
		})
	}
}
