// Package ports chooses the loopback ports of the setups on this machine, and records them. A name keeps its port once
// that is recorded: clients know it, and kcp has it in the URLs of its shards.
package ports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/filelock"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
)

const (
	// File is the name of the file in a setup's state directory that records its ports.
	File = "ports.json"
	// defaultBase is the port at which clients expect an API server: the first front-proxy of the first setup has it.
	defaultBase = 6443
	// blockSize is the distance between the bases of two setups. A setup that needs more ports skips the ports of its
	// neighbours.
	blockSize = 100
	lastBase  = 32000 // below the ports that systems assign to clients
	lastPort  = 65535
)

// record is the content of File.
type record struct {
	Base  int32            `json:"base"`
	Ports map[string]int32 `json:"ports"`
}

func (r record) clone() record { return record{r.Base, maps.Clone(r.Ports)} }

// Set is the ports of one setup. The state directories of all setups are in one directory, and no port belongs to two
// of them.
type Set struct {
	path string
	base int32
	// chosen are the ports that are recorded or reserved. shown are those, and the ones that Assign has added.
	chosen, shown record
	// recorded are the ports that clients know.
	recorded map[string]int32
	// otherBases and others are the ports of the other setups; others has the name of the setup.
	otherBases map[int32]bool
	others     map[int32]string
	// lock is the lock of the directory of all setups. It is held from Reserve to Commit or Release.
	lock *os.File
	// Free reports whether this machine can listen on a port, and Listening whether something does. Tests replace them.
	Free, Listening func(port int32) bool
}

// Load reads the ports of the setup with this state directory. They start at base, which the first front-proxy gets;
// zero keeps the recorded ones, and otherwise stands for the first free block. Load opens no socket and writes nothing.
func Load(dir string, base int32) (*Set, error) {
	s := &Set{path: filepath.Join(dir, File), base: base, Free: Free, Listening: Listening}
	return s, s.load()
}

func (s *Set) load() error {
	own, err := read(s.path)
	if err != nil {
		return err
	}
	if own == nil || s.base != 0 && s.base != own.Base {
		own = &record{Base: s.base, Ports: map[string]int32{}}
	}
	s.chosen = *own
	s.shown = s.chosen.clone()
	s.recorded = maps.Clone(own.Ports)
	return s.loadOthers()
}

// read reads a file of ports. It returns nil if there is none.
func read(path string) (*record, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{Ports: map[string]int32{}}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}

func (s *Set) loadOthers() error {
	s.otherBases = map[int32]bool{}
	s.others = map[int32]string{}
	paths, err := filepath.Glob(filepath.Join(s.root(), "*", File))
	if err != nil {
		return err
	}
	for _, path := range paths {
		r, err := read(path)
		if err != nil {
			return err
		}
		if path == s.path || r == nil {
			continue
		}
		s.otherBases[r.Base] = true
		for _, port := range r.Ports {
			s.others[port] = filepath.Base(filepath.Dir(path))
		}
	}
	return nil
}

// root is the directory of all setups.
func (s *Set) root() string { return filepath.Dir(filepath.Dir(s.path)) }

// Assign returns the ports of names. A name without a port gets the one that Reserve would choose if no program were
// listening on this machine: Assign opens no socket.
func (s *Set) Assign(names []string) (map[string]int32, error) {
	s.shown = s.chosen.clone()
	if err := s.choose(&s.shown, names, func(int32) bool { return true }); err != nil {
		return nil, err
	}
	return maps.Clone(s.shown.Ports), nil
}

// Reserve chooses free ports for the names without one. It keeps the other setups of the user from choosing theirs
// until Commit or Release.
func (s *Set) Reserve(ctx context.Context, names []string) error {
	if err := s.load(); err != nil || s.complete(names) {
		return err
	}
	if err := s.takeLock(ctx); err != nil {
		return err
	}
	err := s.load()
	if err == nil {
		err = s.choose(&s.chosen, names, s.Free)
	}
	if err != nil {
		s.Release()
	}
	s.shown = s.chosen.clone()
	return err
}

// Lost reports whether another process has taken a port that Reserve has chosen, before anything was started: Reserve
// then chooses others. Ports that are recorded, or that the user has chosen, do not change.
func (s *Set) Lost() bool {
	if s.lock == nil || s.base != 0 {
		return false
	}
	for name, port := range s.chosen.Ports {
		if s.recorded[name] != port && s.Listening(port) {
			return true
		}
	}
	return false
}

// complete reports whether all names have ports.
func (s *Set) complete(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return s.chosen.Ports[name] == 0 })
}

// choose adds ports for the names without one.
func (s *Set) choose(r *record, names []string, free func(int32) bool) error {
	if err := s.chooseBase(r, free); err != nil {
		return err
	}
	used := map[int32]bool{}
	for _, port := range r.Ports {
		used[port] = true
	}
	next := r.Base
	for _, name := range names {
		if r.Ports[name] != 0 {
			continue
		}
		port := r.Base
		if !strings.HasPrefix(name, string(topology.FrontProxy)+"/") || used[port] {
			for next++; next <= lastPort && (used[next] || s.others[next] != "" || !free(next)); {
				next++
			}
			if next > lastPort {
				return clierr.New(clierr.Failed, "choose a lower --base-port",
					"no free port from %d for %s", r.Base, name)
			}
			port = next
		}
		r.Ports[name], used[port] = port, true
	}
	return nil
}

// chooseBase chooses the first free block, unless the setup has a base.
func (s *Set) chooseBase(r *record, free func(int32) bool) error {
	if r.Base != 0 {
		return nil
	}
	for base := int32(defaultBase); base <= lastBase; base += blockSize {
		if !s.otherBases[base] && s.others[base] == "" && free(base) {
			r.Base = base
			return nil
		}
	}
	return clierr.New(clierr.Failed, "choose one with --base-port", "no free block of ports below %d", lastBase)
}

// Port returns the recorded or reserved port of a name, or 0.
func (s *Set) Port(name string) int32 { return s.chosen.Ports[name] }

// namesOf returns the names of a component's recorded or reserved ports, sorted.
func (s *Set) namesOf(id topology.ID) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.chosen.Ports)), func(name string) bool {
		return name != string(id) && !strings.HasPrefix(name, string(id)+"/")
	})
}

// Commit records the ports that Reserve or Assign has chosen last, and then allows other setups to choose theirs. It
// fails if another setup has recorded one of them meanwhile, which cannot happen to reserved ones, or if the state
// directory was copied.
func (s *Set) Commit(ctx context.Context) error {
	if s.lock == nil {
		if err := s.takeLock(ctx); err != nil {
			return err
		}
	}
	defer s.Release()
	if err := s.loadOthers(); err != nil {
		return err
	}
	for name, port := range s.shown.Ports {
		setup := s.others[port]
		switch {
		case setup == "":
		case s.recorded[name] == port:
			return clierr.New(clierr.Failed, "move the copy to a directory outside "+s.root()+", and rerun the command",
				"port %d of %s is recorded for the setup %s, too: one of %s and %s is a copy of the other", port, name,
				setup, filepath.Dir(s.path), filepath.Join(s.root(), setup))
		default:
			hint := "rerun the command, which chooses other ports, or choose them with --base-port"
			if s.base != 0 {
				hint = "choose another --base-port, or omit it"
			}
			return clierr.New(clierr.Conflict, hint, "port %d of %s belongs to the setup %s", port, name, setup)
		}
	}
	s.chosen = s.shown.clone()
	return disk.WriteJSON(s.path, s.shown)
}

// Release allows other setups to choose ports. If nothing was committed, it leaves nothing behind.
func (s *Set) Release() {
	if s != nil && s.lock != nil {
		disk.RemoveEmpty(s.lock.Name())
		_ = s.lock.Close()
		s.lock = nil
	}
}

// takeLock waits for the lock of the directory of all setups, which it creates. Purge may remove the directory
// meanwhile.
func (s *Set) takeLock(ctx context.Context) (err error) {
	s.lock, err = filelock.Wait(ctx, func() (*os.File, error) {
		if err := os.MkdirAll(s.root(), 0o700); err != nil {
			return nil, disk.Explain(err, disk.StateHome)
		}
		f, err := filelock.Open(s.root(), os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, filelock.ErrHeld // by the command that is removing it
		}
		return f, err
	})
	return err
}

// RemoveRoot removes the directory of all setups if it is empty and no setup is about to use it.
func (s *Set) RemoveRoot() {
	f, err := filelock.Open(s.root(), os.O_RDONLY, 0)
	if err != nil {
		return
	}
	disk.RemoveEmpty(f.Name())
	_ = f.Close()
}
