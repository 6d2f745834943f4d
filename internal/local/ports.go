package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/topology"
)

const (
	// defaultBase is where clients expect an API server: the first front-proxy of the first setup is there.
	defaultBase = 6443
	// blockSize is the distance between the bases of two setups. A larger setup grows round its neighbours' ports.
	blockSize = 100
	lastBase  = 32000 // below the ports that systems hand out to clients
	loopback  = "127.0.0.1"
)

// portFile is what is remembered of a setup's ports. Once a name has a port it keeps it: clients know it, and kcp has it in
// the URLs of its shards.
type portFile struct {
	Base  int32            `json:"base"`
	Ports map[string]int32 `json:"ports"`
}

// ports gives ports to names.
type ports struct {
	portFile
	path string
	// others are the ports of other setups.
	others map[int32]string
	free   func(int32) bool
	// lock is held from the choice of ports until they are claimed, where they were chosen by ChoosePorts.
	lock *os.File
}

// loadPorts reads the ports of the setup in a directory and of those beside it.
func loadPorts(dir string, base int32, free func(int32) bool) (*ports, error) {
	p := &ports{path: filepath.Join(dir, filePorts), free: free}
	own, err := readPorts(p.path)
	if err != nil {
		return nil, err
	}
	if own != nil {
		p.portFile = *own
	}
	bases, err := p.loadOthers()
	if err != nil {
		return nil, err
	}
	if p.Base == 0 || base != 0 && base != p.Base {
		p.portFile = portFile{Base: base, Ports: map[string]int32{}}
	}
	for p.Base == 0 || base == 0 && own == nil && (bases[p.Base] || p.others[p.Base] != "" || !free(p.Base)) {
		p.Base = max(p.Base+blockSize, defaultBase)
		if p.Base > lastBase {
			return nil, clierr.New(clierr.Failed, "choose one with --base-port", "no free block of ports below %d", lastBase)
		}
	}
	return p, nil
}

func readPorts(path string) (*portFile, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := &portFile{Ports: map[string]int32{}}
	if err := json.Unmarshal(raw, f); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return f, nil
}

// loadOthers reads the ports of the other setups.
func (p *ports) loadOthers() (bases map[int32]bool, err error) {
	p.others, bases = map[int32]string{}, map[int32]bool{}
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(p.path)), "*", filePorts))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		f, err := readPorts(path)
		if err != nil {
			return nil, err
		}
		if path == p.path || f == nil {
			continue
		}
		bases[f.Base] = true
		for _, port := range f.Ports {
			p.others[port] = filepath.Base(filepath.Dir(path))
		}
	}
	return bases, nil
}

// of returns the port of a name, and picks one the first time.
func (p *ports) of(name string) int32 {
	if port, ok := p.Ports[name]; ok {
		return port
	}
	port := p.Base
	if !strings.HasPrefix(name, string(topology.FrontProxy)+"/") || p.used(port) {
		for port++; p.used(port) || p.others[port] != "" || !p.free(port); {
			port++
		}
	}
	p.Ports[name] = port
	return port
}

func (p *ports) used(port int32) bool {
	for _, have := range p.Ports {
		if have == port {
			return true
		}
	}
	return false
}

// ofComponent returns the ports of a component with their names, in the order of the names.
func (p *ports) ofComponent(id topology.ID) []namedPort {
	var out []namedPort
	for name, port := range p.Ports {
		if name == string(id) || strings.HasPrefix(name, string(id)+"/") {
			out = append(out, namedPort{name, port})
		}
	}
	slices.SortFunc(out, func(a, b namedPort) int { return strings.Compare(a.name, b.name) })
	return out
}

type namedPort struct {
	name string
	port int32
}

// claim remembers the ports, and lets others choose. It fails if another setup claimed one of them since they were picked.
func (p *ports) claim(ctx context.Context) error {
	if p.lock == nil {
		var err error
		if p.lock, err = lockRoot(ctx, filepath.Dir(filepath.Dir(p.path))); err != nil {
			return err
		}
	}
	defer p.release()
	if _, err := p.loadOthers(); err != nil {
		return err
	}
	for name, port := range p.Ports {
		if setup := p.others[port]; setup != "" {
			return clierr.New(clierr.Conflict, "run the same command again, it picks other ports; or choose them with --base-port",
				"port %d, meant for %s, belongs to the setup %s", port, name, setup)
		}
	}
	raw, err := json.MarshalIndent(p.portFile, "", "  ")
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(p.path); err == nil && string(have) == string(raw) {
		return nil
	}
	return writeFile(p.path, raw)
}

// release lets others choose ports. Where nothing was claimed, it leaves nothing.
func (p *ports) release() {
	if p != nil && p.lock != nil {
		_ = os.Remove(p.lock.Name()) // fails if there are setups
		_ = p.lock.Close()           // which ends the lock
		p.lock = nil
	}
}

// ChoosePorts picks the ports of a setup that has none yet anew, at base as in NewLayout, and keeps all other setups of the
// user from picking theirs until these are claimed, or the runtime is closed. The topology has to be built after it.
func (l *Layout) ChoosePorts(ctx context.Context, base int32) error {
	if have, err := readPorts(l.ports.path); err != nil || have != nil {
		return err
	}
	lock, err := lockRoot(ctx, filepath.Dir(l.Dir))
	if err != nil {
		return err
	}
	p, err := loadPorts(l.Dir, base, l.ports.free)
	if err != nil {
		_ = lock.Close()
		return err
	}
	p.lock, l.ports = lock, p
	return nil
}

// lockRoot waits until nobody else has the lock of the state folder, and takes it. A folder that was removed meanwhile locks
// nothing, so it tries again.
func lockRoot(ctx context.Context, dir string) (*os.File, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, writeError(err)
		}
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = lockFile(f)
		if err == nil && isThere(f) {
			return f, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pollInterval):
		}
	}
}

// removeRoot removes the state folder if it is empty and nobody is about to use it.
func (l *Layout) removeRoot() {
	f, err := os.Open(filepath.Dir(l.Dir))
	if err != nil {
		return
	}
	defer f.Close() // which ends the lock
	if lockFile(f) == nil {
		_ = os.Remove(f.Name()) // fails if there are setups
	}
}

// address is where a port of this machine is dialled.
func address(port int32) string { return net.JoinHostPort(loopback, strconv.Itoa(int(port))) }

// portFree tells whether nobody listens on a port.
func portFree(port int32) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}
