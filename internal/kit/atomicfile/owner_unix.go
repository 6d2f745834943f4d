//go:build unix

package atomicfile

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a new file the owner of the one that it replaces, as far as this process may: with sudo, users write
// their own files as root. In a directory of another user, such as /tmp, the old file can be a trap.
func keepOwner(f *os.File, old, dir fs.FileInfo) {
	of, okFile := old.Sys().(*syscall.Stat_t)
	in, okDir := dir.Sys().(*syscall.Stat_t)
	if okFile && okDir && old.Mode().IsRegular() && of.Uid == in.Uid && os.Geteuid() == 0 {
		_ = f.Chown(int(of.Uid), int(of.Gid))
	}
}
