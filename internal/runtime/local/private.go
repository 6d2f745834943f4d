//go:build unix

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"github.com/kcpctl/kcpctl/internal/kit/filelock"
	"github.com/kcpctl/kcpctl/internal/runtime/local/process"
)

const (
	// privateLock is the file in a private directory that is locked as long as its process is running.
	privateLock    = "lock"
	newPrivateLock = privateLock + ".new"
)

// PrivateDir creates a directory for secrets that this process needs while it is running: in $XDG_RUNTIME_DIR, which is
// in memory and ends with the session, or else among temporary files. It also removes the directories of processes of
// this user that were killed. getenv is os.Getenv.
func PrivateDir(getenv func(string) string) (dir string, remove func(), err error) {
	bases := []string{os.TempDir()}
	if base := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(base) && isPrivate(base) {
		bases = []string{base, os.TempDir()}
	}
	for _, base := range bases {
		sweep(base)
	}
	dir, err = os.MkdirTemp(bases[0], fmt.Sprintf("kcpctl-%d-*", os.Getpid())) // with mode 0700
	if err != nil {
		return "", nil, explain(err)
	}
	// The file gets its name when it is locked, so sweep never finds it unlocked while this process is running.
	f, err := os.OpenFile(filepath.Join(dir, newPrivateLock), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		err = errors.Join(filelock.Try(f), os.Rename(f.Name(), filepath.Join(dir, privateLock)))
	}
	remove = func() {
		_ = os.RemoveAll(dir)
		_ = f.Close()
	}
	if err != nil {
		remove()
		return "", nil, explain(err)
	}
	return dir, remove, nil
}

// isPrivate reports whether a path is a directory that belongs to this user and that others cannot read.
func isPrivate(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir() && isOurs(info) && info.Mode().Perm()&0o077 == 0
}

func isOurs(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// sweep removes the private directories of dead processes of this user.
func sweep(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, "kcpctl-*-*")) // the pattern is right
	for _, dir := range dirs {
		name := regexp.MustCompile(`^kcpctl-([0-9]+)-[0-9]+$`).FindStringSubmatch(filepath.Base(dir))
		info, err := os.Lstat(dir)
		if name == nil || err != nil || !info.IsDir() || !isPrivate(dir) {
			continue
		}
		pid, err := strconv.Atoi(name[1])
		if err == nil {
			removeAbandoned(dir, pid)
		}
	}
}

// removeAbandoned removes a private directory if its process is dead. The lock shows that, even if the process runs in
// another container. Only if the process was killed before it took the lock, and so before it wrote anything else, its
// PID is checked.
func removeAbandoned(dir string, pid int) {
	f, err := os.OpenFile(filepath.Join(dir, privateLock), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := process.Identify(pid); err != nil {
			removeOnly(dir, newPrivateLock)
		}
		return
	}
	if err != nil {
		return
	}
	defer f.Close()
	if filelock.Try(f) == nil {
		removeOnly(dir, "kubeconfig", privateLock)
	}
}

// removeOnly removes files that kcpctl writes, and their directory if it has no others: a user may have made one with
// such a name.
func removeOnly(dir string, files ...string) {
	for _, file := range files {
		_ = os.Remove(filepath.Join(dir, file))
	}
	_ = os.Remove(dir)
}
