//go:build unix

package local

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// owner returns the ID of the user that a file belongs to, if the system has such IDs.
func owner(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

// writable returns an error if this user cannot create files in a directory.
func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
