package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// memory is a cluster that this machine has applied the setup to. It tells one cluster from another where the context that
// a setup names, or the current one, leads somewhere else one day.
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
		return nil, fmt.Errorf("read which clusters the setup is on: %w", err)
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
func (r *Runtime) recognise(ctx context.Context, surveys []*survey, accepted bool) (strange bool, err error) {
	if err := r.oneInstallation(surveys); err != nil {
		return false, err
	}
	difference, err := r.difference(ctx, surveys[0].inventory)
	if err != nil {
		return false, err
	}
	if accepted || r.options.AllowOtherCluster {
		return difference != nil, nil
	}
	return difference != nil, difference
}

// difference says which cluster is not the one that the inventory or this machine remembers.
func (r *Runtime) difference(ctx context.Context, home *inventory) (difference, err error) {
	all, err := r.memories()
	if err != nil {
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
	r.files.Lock()
	defer r.files.Unlock()
	all, err := r.memories()
	if err != nil || r.options.StateDir == "" {
		return err
	}
	before := slices.Clone(all)
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
	if slices.Equal(before, all) {
		return nil
	}
	return r.writeMemories(all)
}

// forget drops what this machine remembers of a site.
func (r *Runtime) forget(s *site) error {
	r.files.Lock()
	defer r.files.Unlock()
	all, err := r.memories()
	if err != nil || len(all) == 0 {
		return err
	}
	return r.writeMemories(slices.DeleteFunc(all, s.memory().is))
}

func (r *Runtime) writeMemories(all []memory) error {
	file := r.memoryFile()
	if len(all) == 0 {
		return os.Remove(file)
	}
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("encode which clusters the setup is on: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("remember which clusters the setup is on: %w", err)
	}
	tmp := file + ".tmp"
	if err := os.WriteFile(tmp, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("remember which clusters the setup is on: %w", err)
	}
	return os.Rename(tmp, file)
}
