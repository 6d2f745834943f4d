// Package record holds what an installation knows of itself: its identity, its authorities, and where the data of each
// component is. It is kept where the installation runs, outlives down, and says why a run that would lose keys or data must
// not begin. It is pure.
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

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Record is what is known of an installation.
type Record struct {
	// Installation is the ID of the installation.
	Installation string `json:"installation"`
	// Authorities are the fingerprints of the authorities and service-account keys in use, by pki.Rotation.Key.
	Authorities map[string]pki.Fingerprints `json:"authorities,omitempty"`
	// Retired are the fingerprints of those that were in use and are no longer. None of them comes back unless a command says so.
	Retired map[string][]string `json:"retired,omitempty"`
	// Data is where the components that hold data hold it.
	Data map[topology.ID]Data `json:"data,omitempty"`
	// Labels are the labels that the setup wants for the shards in kcp.
	Labels map[topology.ID]map[string]string `json:"labels,omitempty"`
}

// Data is where the data of a component is.
type Data struct {
	// Cluster and Namespace are where its workload runs. Both are empty on this machine.
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// ClusterUID identifies the cluster whatever the setup file calls it. Empty is unknown.
	ClusterUID string `json:"clusterUID,omitempty"`
	// Etcd is the etcd that it writes to: "managed etcd/alpha", "embedded etcd", or endpoints and prefix of an external one. For
	// an etcd itself it is empty.
	Etcd string `json:"etcd,omitempty"`
	// Members is the number of members of an etcd.
	Members int64 `json:"members,omitempty"`
	// Volume is what the data is on: "PersistentVolumeClaim demo-shard-alpha", "emptyDir". It is empty where an etcd elsewhere
	// holds all.
	Volume string `json:"volume,omitempty"`
	// Removed says that remove-shard has taken the component out, and that its data is still there.
	Removed bool `json:"removed,omitempty"`
	// Emptied says that nothing lived there when it was removed.
	Emptied bool `json:"emptied,omitempty"`
}

// Place is the cluster and the namespace: eu/kcp.
func (d Data) Place() string {
	if d.Cluster == "" {
		return "this machine"
	}
	return d.Cluster + "/" + d.Namespace
}

// Empty reports whether nothing is known yet.
func (r *Record) Empty() bool { return r == nil || r.Installation == "" }

// plainSize is up to which size a record is kept as readable text, in bytes; a longer one is compressed: a thousand shards would
// fill the Secret that also holds the history.
const plainSize = 16 << 10

// Encode writes a record as JSON, compressed if it is long.
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

// Decode reads what Encode wrote. Nothing is an empty record.
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

// With is a record with a PKI, and with what is now known of some components. What is known of others stays.
func (r *Record) With(s *pki.State, data map[topology.ID]Data) *Record {
	out := &Record{
		Installation: s.Installation.ID, Authorities: s.Fingerprints(), Data: map[topology.ID]Data{},
		Labels: map[topology.ID]map[string]string{},
	}
	if r != nil {
		maps.Copy(out.Data, r.Data)
		maps.Copy(out.Labels, r.Labels)
		out.Retired = r.retire(out.Authorities)
	}
	for id, d := range data {
		if was := out.Data[id]; was.Place() == d.Place() {
			d.ClusterUID = was.ClusterUID
		}
		out.Data[id] = d
	}
	return out
}

// retire returns what is retired once the authorities are those of now.
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

// Equal reports whether two records say the same.
func (r *Record) Equal(o *Record) bool { return reflect.DeepEqual(r.normal(), o.normal()) }

func (r *Record) normal() Record {
	out := Record{
		Installation: r.Installation, Authorities: map[string]pki.Fingerprints{}, Retired: map[string][]string{},
		Data: map[topology.ID]Data{}, Labels: map[topology.ID]map[string]string{},
	}
	maps.Copy(out.Authorities, r.Authorities)
	maps.Copy(out.Retired, r.Retired)
	maps.Copy(out.Data, r.Data)
	maps.Copy(out.Labels, r.Labels)
	return out
}

// SetLabels records the labels that the setup wants for a shard.
func (r *Record) SetLabels(id topology.ID, labels map[string]string) {
	delete(r.Labels, id)
	if len(labels) > 0 {
		r.Labels[id] = labels
	}
}

// Drop forgets components that a setup does not have any more, and that were not removed with their data left behind.
func (r *Record) Drop(want map[topology.ID]Data) {
	maps.DeleteFunc(r.Labels, func(id topology.ID, _ map[string]string) bool { _, ok := want[id]; return !ok })
	maps.DeleteFunc(r.Data, func(id topology.ID, d Data) bool {
		_, ok := want[id]
		return !ok && !d.Removed
	})
}

// Remove is a record in which components are taken out, with their data left behind. emptied says that nothing lives in it.
func (r *Record) Remove(emptied bool, ids ...topology.ID) *Record {
	out := r.clone()
	for _, id := range ids {
		d := out.Data[id]
		d.Removed, d.Emptied = true, emptied || d.Emptied
		out.Data[id] = d
		delete(out.Labels, id)
	}
	return out
}

// Purge is a record without components, whose data is gone.
func (r *Record) Purge(ids ...topology.ID) *Record {
	out := r.clone()
	for _, id := range ids {
		delete(out.Data, id)
		delete(out.Labels, id)
	}
	return out
}

func (r *Record) clone() *Record {
	out := *r
	out.Data, out.Labels = map[topology.ID]Data{}, map[topology.ID]map[string]string{}
	maps.Copy(out.Data, r.Data)
	maps.Copy(out.Labels, r.Labels)
	return &out
}
