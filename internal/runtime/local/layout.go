package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
	"github.com/kcpctl/kcpctl/internal/runtime/local/ports"
)

// Dirs are the directories in which kcpctl keeps files on this machine. A directory that cannot be determined is empty.
type Dirs struct {
	// State has a directory for each setup that runs on this machine.
	State string
	// Cache has files that can be restored, such as downloads.
	Cache string
}

// UserDirs returns the directories of the user, according to the XDG base directory specification. getenv is os.Getenv.
func UserDirs(getenv func(string) string) Dirs {
	find := func(variable string, belowHome ...string) string {
		dir, home := getenv(variable), getenv("HOME")
		switch { // the specification requires that relative paths are ignored
		case filepath.IsAbs(dir):
			return filepath.Join(dir, topology.ManagedBy)
		case filepath.IsAbs(home):
			return filepath.Join(append(append([]string{home}, belowHome...), topology.ManagedBy)...)
		}
		return ""
	}
	return Dirs{State: find(disk.StateHome, ".local", "state"), Cache: find(disk.CacheHome, ".cache")}
}

// Validate returns an error if kcp cannot run on this machine, or if a directory is unknown: a setup needs both.
func (d Dirs) Validate() error { return d.validate(runtime.GOOS) }

func (d Dirs) validate(system string) error {
	if system == "windows" {
		return clierr.New(clierr.BadInput,
			"omit --local to deploy to a Kubernetes cluster, or use kcpctl for Linux in WSL",
			"kcp has no servers for Windows, so no setup can be on this machine")
	}
	if d.State != "" && d.Cache != "" {
		return nil
	}
	return clierr.New(clierr.Failed, "set HOME, or XDG_STATE_HOME and XDG_CACHE_HOME, to absolute paths",
		"no home directory: $HOME is not set")
}

// The files and directories below the state directory of a setup. Package topology decides the directories of its
// components.
const (
	dirPKI       = "pki"
	dirObjects   = "objects"
	dirProcesses = "processes"
	dirLogs      = "logs"
	dirHistory   = "history"
	fileLock     = "lock"
	fileApplying = "applying"
	fileRecord   = "installation.json"
	fileSerial   = "serial"
)

// Layout is where the files and ports of a setup are on this machine.
type Layout struct {
	// Setup is the setup's name.
	Setup string
	// Dir is the state directory of the setup. It may not exist yet.
	Dir   string
	ports *ports.Set
}

// NewLayout finds the files and the recorded ports of a setup below the state directory of the user. base is the port
// of the first front-proxy, at which the others start; zero keeps the recorded ports. It opens no socket and writes
// nothing.
func NewLayout(state, setup string, base int32) (*Layout, error) {
	l := &Layout{Setup: setup, Dir: filepath.Join(state, setup)}
	if err := l.checkOwner(os.Geteuid()); err != nil {
		return nil, err
	}
	var err error
	l.ports, err = ports.Load(l.Dir, base)
	return l, err
}

// Installed reports whether a setup has an installation below the state directory of the user.
func Installed(state, setup string) bool {
	_, err := os.Stat(filepath.Join(state, setup, fileRecord))
	return state != "" && err == nil
}

// Topology returns the components of a setup on this machine. Ports that are not recorded or reserved yet are those
// that ReservePorts would choose if they were free.
func (l *Layout) Topology(s *v1alpha1.Setup) (*topology.Topology, error) {
	assigned, err := l.ports.Assign(topology.PortNames(s))
	if err != nil {
		return nil, err
	}
	return topology.BuildLocal(s, l.Dir, assigned), nil
}

// ReservePorts chooses free ports for a setup that is about to be started, unless it has them. No other setup of the
// user chooses ports until these are recorded (Runtime.Begin) or the runtime is closed. Topology returns them from then
// on.
func (l *Layout) ReservePorts(ctx context.Context, s *v1alpha1.Setup) error {
	return l.ports.Reserve(ctx, topology.PortNames(s))
}

// LostPorts reports whether another process has taken a reserved port, before anything was started.
func (l *Layout) LostPorts() bool { return l.ports.Lost() }

func (l *Layout) path(parts ...string) string {
	return filepath.Join(append([]string{l.Dir}, parts...)...)
}

// checkOwner refuses the setup of another user: its files would get two owners, and its processes could not be stopped.
func (l *Layout) checkOwner(euid int) error {
	info, err := os.Stat(l.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return l.notMine(err)
	case err != nil:
		return explain(err)
	}
	if !info.IsDir() {
		return clierr.New(clierr.Failed, "move it away, or set XDG_STATE_HOME", "%s is not a directory", l.Dir)
	}
	if uid, ok := owner(info); ok && uid != euid {
		return clierr.New(clierr.Failed, hintOwner,
			"setup %s on this machine belongs to %s: %s", l.Setup, userName(uid), l.Dir)
	}
	return nil
}

// hintOwner does not suggest another directory alone: a second kcp would start there.
const hintOwner = "run kcpctl as that user; for a kcp of your own, set XDG_STATE_HOME to a directory of your own"

// notMine explains that the state directory cannot be looked into, and whose the nearest directory above it is.
func (l *Layout) notMine(err error) error {
	for dir := filepath.Dir(l.Dir); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		info, above := os.Stat(dir)
		if above != nil {
			continue
		}
		if uid, ok := owner(info); ok {
			return clierr.New(clierr.Failed, hintOwner, "%w: %s belongs to %s", err, dir, userName(uid))
		}
	}
	return explain(err)
}

func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return "user " + u.Username
	}
	return "user ID " + id
}

// explain adds a next step to an error of writing to the state directory.
func explain(err error) error { return disk.Explain(err, disk.StateHome) }
