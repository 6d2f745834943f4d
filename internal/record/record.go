// Package record is the record of an installation: its identity, the fingerprints of its authorities, and where each
// component holds its data. The record is stored where the installation runs, and survives kcpctl down. Runs are
// compared with it, so that a run which would lose keys or data is refused. The package is pure.
package record

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Record is the record of an installation.
type Record struct {
	// Installation is the ID of the installation.
	Installation string `json:"installation"`
	// Authorities are the fingerprints of the authorities and service-account keys in use, by pki.Rotation.Key.
	Authorities map[string]pki.Fingerprints `json:"authorities,omitempty"`
	// AuthoritiesApplied is when a run had applied them to all components. It is zero until then.
	AuthoritiesApplied time.Time `json:"authoritiesApplied,omitzero"`
	// Retired are the fingerprints of authorities and keys that were in use before. They are accepted again only on
	// request.
	Retired map[string][]string `json:"retired,omitempty"`
	// Data describes where components hold their data.
	Data map[topology.ID]Data `json:"data,omitempty"`
	// Addresses are the addresses that clusters have assigned to components.
	Addresses topology.Addresses `json:"addresses,omitempty"`
	// Labels are the labels that the setup wants for the shards in kcp.
	Labels map[topology.ID]map[string]string `json:"labels,omitempty"`
	// Placed are the objects in workspaces of kcp.
	Placed []Placed `json:"placed,omitempty"`
	// Moved are the front-proxies that must restart, because the base URL of a shard has changed, by the shard.
	Moved map[topology.ID][]topology.ID `json:"moved,omitempty"`
	// WorkloadsID identifies the installation in the physical clusters of spec.workloads: the logical cluster of the first compute workspace. It
	// stays if that is created again. It is empty until kcpctl up has read it.
	WorkloadsID string `json:"workloadsID,omitempty"`
}

// Data describes where a component holds its data.
type Data struct {
	// Cluster and Namespace are where the workload runs. Both are empty on this machine.
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// ClusterUID identifies the cluster even if its name in the setup file changes. Empty: unknown.
	ClusterUID string `json:"clusterUID,omitempty"`
	// Etcd is the etcd that the component writes to: "managed etcd/alpha", "embedded etcd", or endpoints and prefix of an
	// external one. It is empty for an etcd.
	Etcd string `json:"etcd,omitempty"`
	// Members is the number of members of an etcd.
	Members int64 `json:"members,omitempty"`
	// Volume is the volume of the data: "PersistentVolumeClaim demo-shard-alpha", "emptyDir". It is empty if a separate
	// etcd holds all data.
	Volume string `json:"volume,omitempty"`
	// Removed is set if kcpctl remove-shard has removed the component, and its data still exists.
	Removed bool `json:"removed,omitempty"`
	// Emptied is set if the component held no logical clusters when it was removed.
	Emptied bool `json:"emptied,omitempty"`
}

// Place returns the cluster and the namespace: eu/kcp.
func (d Data) Place() string {
	if d.Cluster == "" {
		return "this machine"
	}
	return d.Cluster + "/" + d.Namespace
}

// Empty reports whether the record is that of an installation that does not exist yet.
func (r *Record) Empty() bool { return r == nil || r.Installation == "" }

// plainSize is the largest size, in bytes, of a record that is stored as readable text. A longer one is compressed:
// with a thousand shards it would fill the Secret, which also holds the history.
const plainSize = 16 << 10

// Encode returns the record as JSON, compressed if it is long.
func (r *Record) Encode() ([]byte, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the record of the installation: %w", err)
	}
	if len(raw) <= plainSize {
		return raw, nil
	}
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, err = z.Write(raw)
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, fmt.Errorf("compress the record of the installation: %w", err)
	}
	return buf.Bytes(), nil
}

// Decode parses the result of Encode. No data is an empty record.
func Decode(raw []byte) (*Record, error) {
	r := &Record{}
	if len(raw) == 0 {
		return r, nil
	}
	if z, err := gzip.NewReader(bytes.NewReader(raw)); err == nil {
		if raw, err = io.ReadAll(z); err != nil {
			return nil, fmt.Errorf("read the record of the installation: %w", err)
		}
	}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("read the record of the installation: %w", err)
	}
	return r, nil
}

// With returns the record with the authorities of a PKI and the data of some components. Other components stay as they
// are.
func (r *Record) With(s *pki.State, data map[topology.ID]Data) *Record {
	out := &Record{
		Installation: s.Installation.ID, Authorities: s.Fingerprints(), Data: map[topology.ID]Data{},
		Labels: map[topology.ID]map[string]string{}, Addresses: topology.Addresses{},
	}
	if r != nil {
		maps.Copy(out.Data, r.Data)
		maps.Copy(out.Labels, r.Labels)
		maps.Copy(out.Addresses, r.Addresses)
		out.Placed, out.Moved, out.WorkloadsID = r.Placed, r.Moved, r.WorkloadsID
		out.Retired = r.retire(out.Authorities)
		if reflect.DeepEqual(r.Authorities, out.Authorities) {
			out.AuthoritiesApplied = r.AuthoritiesApplied
		}
	}
	for id, d := range data {
		if was := out.Data[id]; was.Place() == d.Place() {
			d.ClusterUID = was.ClusterUID
		}
		out.Data[id] = d
	}
	return out
}

// retire returns the retired fingerprints after the authorities have changed to those of now.
func (r *Record) retire(now map[string]pki.Fingerprints) map[string][]string {
	out := map[string][]string{}
	for _, rotation := range pki.AllRotations() {
		key := rotation.Key()
		inUse := now[key].All()
		for _, f := range slices.Concat(r.Retired[key], r.Authorities[key].All()) {
			if !slices.Contains(inUse, f) && !slices.Contains(out[key], f) {
				out[key] = append(out[key], f)
			}
		}
	}
	return out
}

// Equal reports whether two records are equal. A missing map equals an empty one.
func (r *Record) Equal(o *Record) bool { return reflect.DeepEqual(r.normal(), o.normal()) }

func (r *Record) normal() Record {
	out := Record{
		Installation: r.Installation, Authorities: map[string]pki.Fingerprints{}, Retired: map[string][]string{},
		Data: map[topology.ID]Data{}, Labels: map[topology.ID]map[string]string{}, Addresses: topology.Addresses{},
		AuthoritiesApplied: r.AuthoritiesApplied, WorkloadsID: r.WorkloadsID,
	}
	maps.Copy(out.Addresses, r.Addresses)
	maps.Copy(out.Authorities, r.Authorities)
	maps.Copy(out.Retired, r.Retired)
	maps.Copy(out.Data, r.Data)
	maps.Copy(out.Labels, r.Labels)
	out.Placed = append(out.Placed, r.Placed...)
	out.Moved = map[topology.ID][]topology.ID{}
	maps.Copy(out.Moved, r.Moved)
	return out
}

// WithMoved returns the record with the front-proxies that must restart, by the shard whose base URL has changed.
func (r *Record) WithMoved(moved map[topology.ID][]topology.ID) *Record {
	out := r.clone()
	out.Moved = moved
	return out
}

// Applied records when a run had applied the authorities to all components, unless an earlier run had.
func (r *Record) Applied(now time.Time) {
	if r.AuthoritiesApplied.IsZero() {
		r.AuthoritiesApplied = now.UTC().Truncate(time.Second)
	}
}

// SetLabels records the labels that the setup wants for a shard.
func (r *Record) SetLabels(id topology.ID, labels map[string]string) {
	delete(r.Labels, id)
	if len(labels) > 0 {
		r.Labels[id] = labels
	}
}

// SetAddresses records the addresses that clusters have assigned to components. It forgets those of other components.
func (r *Record) SetAddresses(assigned []*topology.Component) {
	r.Addresses = topology.Addresses{}
	for _, c := range assigned {
		r.Addresses[c.ID()] = c.Assignment.Known
	}
}

// Drop removes components from the record that are no longer in the setup. It keeps removed components whose data
// still exists.
func (r *Record) Drop(want map[topology.ID]Data) {
	maps.DeleteFunc(r.Labels, func(id topology.ID, _ map[string]string) bool { _, ok := want[id]; return !ok })
	maps.DeleteFunc(r.Data, func(id topology.ID, d Data) bool {
		_, ok := want[id]
		return !ok && !d.Removed
	})
}

// Forget removes the data of removed components on some clusters, which are lost for good.
func (r *Record) Forget(clusters []string) {
	maps.DeleteFunc(r.Data, func(_ topology.ID, d Data) bool { return d.Removed && slices.Contains(clusters, d.Cluster) })
}

// Remove returns the record in which components are marked as removed, with their data left behind. emptied: they hold
// no logical clusters.
func (r *Record) Remove(emptied bool, ids ...topology.ID) *Record {
	out := r.clone()
	for _, id := range ids {
		d := out.Data[id]
		d.Removed, d.Emptied = true, emptied || d.Emptied
		out.Data[id] = d
		delete(out.Labels, id)
		delete(out.Moved, id)
	}
	return out
}

// Purge returns the record without components whose data was deleted.
func (r *Record) Purge(ids ...topology.ID) *Record {
	out := r.clone()
	for _, id := range ids {
		delete(out.Data, id)
		delete(out.Labels, id)
		delete(out.Moved, id)
	}
	return out
}

func (r *Record) clone() *Record {
	out := *r
	out.Data, out.Labels, out.Addresses = map[topology.ID]Data{}, map[topology.ID]map[string]string{}, topology.Addresses{}
	maps.Copy(out.Addresses, r.Addresses)
	maps.Copy(out.Data, r.Data)
	maps.Copy(out.Labels, r.Labels)
	out.Moved = maps.Clone(r.Moved)
	return &out
}
