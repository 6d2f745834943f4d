package local

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/kcpctl/kcpctl/internal/atomicfile"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Folders are where kcpctl keeps files on this machine. One that cannot be found is empty.
type Folders struct {
	// State has a folder for each setup that runs here.
	State string
	// Cache has what can be had again, such as downloads.
	Cache string
}

// UserFolders are the folders of the user, as the XDG base directory specification has them. getenv is os.Getenv.
func UserFolders(getenv func(string) string) Folders {
	folder := func(variable string, below ...string) string {
		dir, home := getenv(variable), getenv("HOME")
		switch { // the specification wants relative paths to be ignored
		case filepath.IsAbs(dir):
			return filepath.Join(dir, topology.ManagedBy)
		case filepath.IsAbs(home):
			return filepath.Join(append(append([]string{home}, below...), topology.ManagedBy)...)
		}
		return ""
	}
	return Folders{State: folder("XDG_STATE_HOME", ".local", "state"), Cache: folder("XDG_CACHE_HOME", ".cache")}
}

// Demand is an error if a folder cannot be found: a setup on this machine needs both.
func (f Folders) Demand() error {
	if f.State != "" && f.Cache != "" {
		return nil
	}
	return clierr.New(clierr.Failed, "set HOME, or XDG_STATE_HOME and XDG_CACHE_HOME, to absolute paths",
		"no home directory: $HOME is not set")
}

// The files and folders below the state directory of a setup. Topology decides those of its components.
const (
	dirPKI       = "pki"
	dirObjects   = "objects"
	dirProcesses = "processes"
	dirLogs      = "logs"
	dirHistory   = "history"
	filePorts    = "ports.json"
	fileLock     = "lock"
	fileApplying = "applying"
	fileRecord   = "installation.json"
)

// Layout is where the files and ports of a setup are on this machine.
type Layout struct {
	// Setup is the setup's name.
	Setup string
	// Dir is the state directory of the setup. It may not exist yet.
	Dir   string
	ports *ports
}

// NewLayout finds the files and the ports of a setup below the state folder, and picks ports for one that has none yet.
// They start at base, which the first front-proxy gets; zero keeps those that the setup has, or picks the first free block.
// It writes nothing: ports are claimed when the setup is applied.
func NewLayout(state, setup string, base int32) (*Layout, error) {
	l := &Layout{Setup: setup, Dir: filepath.Join(state, setup)}
	if err := l.checkOwner(os.Geteuid()); err != nil {
		return nil, err
	}
	var err error
	if l.ports, err = loadPorts(l.Dir, base, portFree); err != nil {
		return nil, err
	}
	return l, nil
}

// Topology is what topology.BuildLocal needs.
func (l *Layout) Topology() topology.Local { return topology.Local{Dir: l.Dir, Port: l.ports.of} }

func (l *Layout) path(parts ...string) string {
	return filepath.Join(append([]string{l.Dir}, parts...)...)
}

// checkOwner makes sure that nobody runs another user's setup: files would get two owners, processes could not be stopped.
func (l *Layout) checkOwner(euid int) error {
	info, err := os.Stat(l.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return writeError(err)
	}
	if !info.IsDir() {
		return clierr.New(clierr.Failed, "move it away, or set XDG_STATE_HOME", "%s is not a directory", l.Dir)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != euid {
		return clierr.New(clierr.Failed, "run kcpctl as that user, or set XDG_STATE_HOME to a directory of your own",
			"setup %s on this machine belongs to %s: %s", l.Setup, userName(st.Uid), l.Dir)
	}
	return nil
}

func userName(uid uint32) string {
	id := strconv.Itoa(int(uid))
	if u, err := user.LookupId(id); err == nil {
		return "user " + u.Username
	}
	return "user ID " + id
}

// writeError adds what to do to an error of the file system.
func writeError(err error) error {
	hint := ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = "free some space, or set XDG_STATE_HOME to a directory on another disk, and run the same command again"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		hint = "set XDG_STATE_HOME to a directory that you can write to"
	default:
		return err
	}
	return &clierr.Error{Err: err, Code: clierr.Failed, Hint: hint}
}

// writeFile replaces a file at once: whoever reads it sees all of the old content or all of the new. Only its owner can
// read it. Missing folders are made.
func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return writeError(err)
	}
	return writeError(atomicfile.Write(path, content, 0o600))
}

// removeFile removes a file that may be gone already.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return writeError(err)
	}
	return nil
}
