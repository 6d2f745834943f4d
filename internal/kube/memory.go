package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kcpctl/kcpctl/internal/atomicfile"
	"github.com/kcpctl/kcpctl/internal/clierr"
)

// memory is a cluster that this machine has applied the setup to. It tells one cluster from another where the context that
// a setup names, or the current one, leads somewhere else one day. It is best effort: where this machine has no place for it, a
// run says so once and continues without.
type memory struct {
	placement
	// Asked is the context that the setup file names; empty is the current one.
	Asked string `json:"asked,omitempty"`
}

func (s *site) memory() memory { return memory{placement: s.placement(), Asked: s.Cluster.Context} }

// is tells whether two memories are of the same place of the same setup file.
func (m memory) is(o memory) bool { return m.placement.is(o.placement) && m.Asked == o.Asked }

func (r *Runtime) memoryFile() string {
	return filepath.Join(r.options.StateDir, "clusters", r.topology.Name+".json")
}

func (r *Runtime) memories() ([]memory, error) {
	if r.options.StateDir == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(r.memoryFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []memory
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, clierr.New(clierr.Failed, "delete the file: it only remembers which clusters the setup was applied to",
			"read %s: %w", r.memoryFile(), err)
	}
	return all, nil
}

// recognise refuses clusters that are not those that the setup was applied to, unless they are accepted. Accepted ones are
// strange all the same, until they are remembered.
func (r *Runtime) recognise(ctx context.Context, surveys []*survey) (strange bool, err error) {
	difference, err := r.difference(ctx, surveys[0].inventory)
	if err != nil {
		return false, err
	}
	if r.options.AllowOtherCluster {
		return difference != nil, nil
	}
	return difference != nil, difference
}

// difference says which cluster is not the one that the inventory or this machine remembers.
func (r *Runtime) difference(ctx context.Context, home *inventory) (difference, err error) {
	all, err := r.memories()
	if err != nil && !r.unreadable(err) {
		return nil, err
	}
	for _, s := range r.sites {
		now := s.memory()
		for _, m := range all {
			if m.is(now) && difference == nil {
				difference = s.differs(m.placement)
			}
		}
		for _, p := range home.clusters {
			if p.is(now.placement) && difference == nil {
				difference = s.differs(p)
			}
		}
	}
	if difference == nil {
		difference = r.elsewhere(ctx, home, all)
	}
	return difference, nil
}

// differs is an error if a site is not the cluster that is remembered. Where either is unknown it says nothing.
func (s *site) differs(was placement) error {
	if was.UID == "" || s.uid == "" || was.UID == s.uid {
		return nil
	}
	return clierr.New(clierr.Failed, "choose the right context, or accept the cluster with --allow-other-cluster",
		"the setup was applied to another cluster than this one: cluster %s was context %s (UID %s), and is context %s (UID %s) now",
		s.Name, was.Context, was.UID, s.context, s.uid)
}

// remember keeps on this machine which clusters the setup is on.
func (r *Runtime) remember() error {
	return r.changeMemories(func(all []memory) []memory {
		for _, s := range r.sites {
			now := s.memory()
			switch i := slices.IndexFunc(all, now.is); {
			case s.uid == "":
			case i < 0:
				all = append(all, now)
			default:
				all[i] = now
			}
		}
		return all
	})
}

// forget drops what this machine remembers of a site.
func (r *Runtime) forget(s *site) error {
	return r.changeMemories(func(all []memory) []memory { return slices.DeleteFunc(all, s.memory().is) })
}

// changeMemories writes what change makes of the memories of this machine, if that differs.
func (r *Runtime) changeMemories(change func([]memory) []memory) error {
	r.files.Lock()
	defer r.files.Unlock()
	all, err := r.memories()
	switch {
	case r.options.StateDir == "", r.unreadable(err): // what cannot be read is not replaced either
		return nil
	case err != nil:
		return err
	}
	before := slices.Clone(all)
	if all = change(all); !slices.Equal(before, all) {
		r.writeMemories(all)
	}
	return nil
}

func (r *Runtime) writeMemories(all []memory) {
	file := r.memoryFile()
	if len(all) == 0 {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			r.noteMemory(err)
		}
		return
	}
	raw, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(file, append(raw, '\n'), 0o600)
	}
	r.noteMemory(err)
}

// unreadable reports whether an error of memories is one of the file system, which is noted. Content that is not understood is not:
// it may have had a warning to give.
func (r *Runtime) unreadable(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); !ok {
		return false
	}
	r.noteMemory(err)
	return true
}

// noteMemory says once why this machine does not remember, if there is a reason.
func (r *Runtime) noteMemory(err error) {
	if err == nil {
		return
	}
	r.memoryNote.Do(func() {
		r.notify("this machine does not remember which clusters the setup is on, and cannot warn when a context leads to another one: %v", err)
	})
}
