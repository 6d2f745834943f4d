package fakeruntime

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// storage are the volumes of components. They appear with the first workload that uses them, and stay until the test or
// a purge deletes them.
type storage struct {
	// volumes are the UIDs of claims, by cluster, namespace and name. uids are those of the clusters, by name.
	volumes, uids map[string]string
	made          int
}

// provide makes the volumes that a workload lacks.
func (s *storage) provide(setup string, it plan.Item) {
	d, ok := record.Of(setup, it.Component, it.Cluster, it.Want)
	if !ok {
		return
	}
	name, prefix := d.Claim()
	names := []string{name}
	if prefix != "" {
		names = nil
		for n := range d.Members {
			names = append(names, fmt.Sprintf("%s%d", prefix, n))
		}
	}
	for _, name := range names {
		if at := d.Place() + "/" + name; name != "" && s.volumes[at] == "" {
			s.made++
			s.set(at, fmt.Sprintf("uid-%d", s.made))
		}
	}
}

func (s *storage) set(at, uid string) {
	if s.volumes == nil {
		s.volumes = map[string]string{}
	}
	s.volumes[at] = uid
}

// Storage returns the volumes.
func (r *Runtime) Storage(_ context.Context, data map[topology.ID]record.Data) (map[topology.ID]record.Storage, error) {
	if err := r.hook("Storage"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[topology.ID]record.Storage{}
	for id, d := range data {
		if _, left := plan.UnreachableIn(r.left, d.Cluster); left {
			continue
		}
		s := record.Storage{ClusterUID: r.uids[d.Cluster]}
		for at, uid := range r.volumes {
			if name, ok := strings.CutPrefix(at, d.Place()+"/"); ok && d.Uses(name) {
				if s.Volumes == nil {
					s.Volumes = map[string]string{}
				}
				s.Volumes[name] = uid
			}
		}
		out[id] = s
	}
	return out, nil
}

// Unused returns nothing: volumes have no labels.
func (r *Runtime) Unused(context.Context, map[topology.ID]record.Data) (map[topology.ID][]record.Data, error) {
	return nil, r.hook("Unused")
}

// Keep keeps the record.
func (r *Runtime) Keep(ctx context.Context, rec *record.Record) error {
	if err := r.write(ctx, "Keep"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record = rec
	return nil
}

// Volumes returns the UIDs of the volumes, by cluster, namespace and name.
func (r *Runtime) Volumes() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.volumes)
}

// SetVolume replaces a volume by another one. An empty UID deletes it.
func (r *Runtime) SetVolume(at, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if uid == "" {
		delete(r.volumes, at)
		return
	}
	r.set(at, uid)
}

// SetCluster makes a cluster another one of the same name.
func (r *Runtime) SetCluster(name, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.uids == nil {
		r.uids = map[string]string{}
	}
	r.uids[name] = uid
}

// SetRecord replaces the record.
func (r *Runtime) SetRecord(change func(*record.Record) *record.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record = change(r.record)
}
