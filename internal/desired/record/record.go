// Package record is the record of an installation: its identity, the fingerprints of its authorities, and where each
// component holds its data. The record is stored where the installation runs, and survives kcpctl down. Runs are
// compared with it, so that a run which would lose keys or data is refused. The package is pure.
package record

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/format"
)

// Record is the record of an installation.
type Record struct {
	// Format is the format in which the record was read. Encode sets the format of the written record.
	Format format.Stamp `json:"format"`
	// Installation is the ID of the installation.
	Installation string `json:"installation"`
	// Authorities are the fingerprints of the authorities and service-account keys in use, by pki.Rotation.Key.
	Authorities map[string]pki.Fingerprints `json:"authorities,omitempty"`
	// AuthoritiesApplied is when a run had applied them to all components. It is zero until then.
	AuthoritiesApplied time.Time `json:"authoritiesAppliedAt,omitzero"`
	// Replaced are the authorities that were replaced without a rotation, by pki.Rotation.Key, until a run has applied
	// them to all components: what runs with the previous one and what runs with the new one reject each other.
	Replaced []string `json:"replaced,omitempty"`
	// Keyed are the fingerprints of the authorities in use whose private keys were in the PKI store, sorted. It is nil
	// in records of earlier releases, which means unknown.
	Keyed []string `json:"keyed,omitempty"`
	// Retired are the fingerprints of authorities and keys that were in use before. They are accepted again only on
	// request.
	Retired map[string][]string `json:"retired,omitempty"`
	// Renewals counts the runs that have renewed certificates, perhaps because a key was stolen: a record from before
	// is older (see CheckRestored), even if there is no other change.
	Renewals int64 `json:"renewals,omitempty"`
	// Restores counts the restores of data. A rotation of the encryption key that began to write all objects again
	// before a restore has not written the restored ones.
	Restores int64 `json:"restores,omitempty"`
	// Encrypted are the resources of which objects may be encrypted in the etcds: secrets. Nil is unknown, too, as in
	// records of earlier releases.
	Encrypted []string `json:"encrypted,omitempty"`
	// Data describes where components hold their data.
	Data map[topology.ID]Data `json:"data,omitempty"`
	// Addresses are the addresses that clusters have assigned to components.
	Addresses topology.Addresses `json:"addresses,omitempty"`
	// Labels are the labels that the setup wants for the shards in kcp.
	Labels map[topology.ID]map[string]string `json:"labels,omitempty"`
	// Placed are the objects in workspaces of kcp.
	Placed []Placed `json:"placed,omitempty"`
	// Agents are the agents that have objects in workspaces, or may have.
	Agents map[topology.ID]Agent `json:"agents,omitempty"`
	// Moved are the front-proxies that must restart, because the base URL of a shard has changed, by the shard.
	Moved map[topology.ID][]topology.ID `json:"moved,omitempty"`
	// Serial counts the changes of the record. It never decreases. Zero: an earlier kcpctl has written the record,
	// which also knows no further certificates of bundles.
	Serial int64 `json:"serial,omitempty"`
	// Restoring is the backup that a restore has begun to bring back, and Awaiting are the components whose data it
	// replaces: some may have their data already. The restore has ended when both are empty.
	Restoring string        `json:"restoring,omitempty"`
	Awaiting  []topology.ID `json:"awaiting,omitempty"`
	// Stopped is when that restore had stopped all servers. The revisions of the restored databases follow from it, so
	// that a run which continues makes the same databases, and finds those that are in place.
	Stopped time.Time `json:"stoppedAt,omitzero"`
	// Witnessed is the largest Serial that is noted outside of the record (see CheckRestored), and Unwitnessed means
	// that not every place has noted the current one. Neither is stored.
	Witnessed   int64 `json:"-"`
	Unwitnessed bool  `json:"-"`
	// Lost is the installation that had its record here, if there is none now. It is not stored.
	Lost string `json:"-"`
}

// Data describes where a component holds its data.
type Data struct {
	// Cluster and Namespace are where the workload runs. Both are empty on this machine.
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// ClusterUID identifies the cluster even if its name in the setup file changes. Empty: unknown.
	ClusterUID string `json:"clusterUID,omitempty"`
	// Etcd is the etcd that the component writes to: "managed etcd/alpha", "embedded etcd", or endpoints and prefix of
	// an external one. It is empty for an etcd.
	Etcd string `json:"etcd,omitempty"`
	// Members is the number of members of an etcd.
	Members int64 `json:"members,omitempty"`
	// Volume is the volume of the data: "PersistentVolumeClaim demo-shard-alpha", "emptyDir". It is empty if a separate
	// etcd holds all data.
	Volume string `json:"volume,omitempty"`
	// Volumes are the IDs of the volumes, by name: the UIDs of PersistentVolumeClaims, or on this machine the IDs in
	// data directories. Empty: unknown, as in records of earlier releases, or the component has no volumes.
	Volumes map[string]string `json:"volumes,omitempty"`
	// Release is the release that writes the data: v0.32.3. Empty: unknown.
	Release string `json:"release,omitempty"`
	// Removed is set if kcpctl remove-shard has removed the component, and its data still exists.
	Removed bool `json:"removed,omitempty"`
	// Emptied is set if the component held no logical clusters when it was removed.
	Emptied bool `json:"emptied,omitempty"`

	// Directory is the data directory on this machine. It is not recorded, because state directories can be moved.
	Directory string `json:"-"`
	// Deleting are the names of volumes that disappear when pods no longer use them. They are not recorded.
	Deleting []string `json:"-"`
}

// Place returns the cluster and the namespace: eu/kcp.
func (d Data) Place() string {
	if d.Cluster == "" {
		return "this machine"
	}
	return d.Cluster + "/" + d.Namespace
}

// Empty reports whether the installation of the record does not exist yet.
func (r *Record) Empty() bool { return r == nil || r.Installation == "" }

// With returns the record with the authorities of a PKI and the data of some components. The data of other components
// is kept.
func (r *Record) With(s *pki.State, data map[topology.ID]Data) *Record {
	out := &Record{
		Installation: s.Installation.ID, Authorities: s.Fingerprints(), Data: map[topology.ID]Data{},
		Labels: map[topology.ID]map[string]string{}, Addresses: topology.Addresses{}, Keyed: r.keyed(s),
		Encrypted: s.Encryption.Resources,
	}
	if r != nil {
		maps.Copy(out.Data, r.Data)
		maps.Copy(out.Labels, r.Labels)
		maps.Copy(out.Addresses, r.Addresses)
		out.Placed = r.Placed
		out.Agents = maps.Clone(r.Agents)
		out.Moved = r.Moved
		out.Renewals = r.Renewals
		out.Restores = r.Restores
		out.Restoring = r.Restoring
		out.Awaiting = r.Awaiting
		out.Stopped = r.Stopped
		out.Serial = r.Serial
		out.Witnessed = r.Witnessed
		out.Unwitnessed = r.Unwitnessed
		out.Retired = r.retire(out.Authorities)
		out.Replaced = r.replaced(out.Authorities)
		if reflect.DeepEqual(r.Authorities, out.Authorities) {
			out.AuthoritiesApplied = r.AuthoritiesApplied
		}
	}
	for id, d := range data {
		d = d.keeps(out.Data[id])
		d.Directory = ""
		d.Deleting = nil
		if len(d.Volumes) == 0 {
			d.Volumes = nil
		}
		out.Data[id] = d
	}
	return out
}

// retire returns the retired fingerprints, given the new authorities.
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

// replaced returns which authorities are replaced without a rotation, given the new ones: not both trust the other one.
func (r *Record) replaced(now map[string]pki.Fingerprints) []string {
	var out []string
	for _, rotation := range pki.AllRotations() {
		key := rotation.Key()
		was := r.Authorities[key]
		is := now[key]
		rotated := slices.Contains(was.All(), is.Current) && slices.Contains(is.All(), was.Current)
		if was.Current != "" && !rotated || slices.Contains(r.Replaced, key) {
			out = append(out, key)
		}
	}
	return out
}

// Equal reports whether two records have the same content, whatever their serials. A missing map equals an empty one.
// A record that does not know which authorities had keys equals one that does.
func (r *Record) Equal(o *Record) bool {
	sameKeys := r.Keyed == nil || o.Keyed == nil || slices.Equal(r.Keyed, o.Keyed)
	return sameKeys && reflect.DeepEqual(r.normal(), o.normal())
}

func (r *Record) normal() Record {
	out := Record{
		Installation: r.Installation, Authorities: map[string]pki.Fingerprints{}, Retired: map[string][]string{},
		Data: map[topology.ID]Data{}, Labels: map[topology.ID]map[string]string{}, Addresses: topology.Addresses{},
		AuthoritiesApplied: r.AuthoritiesApplied, Renewals: r.Renewals, Restores: r.Restores,
		Restoring: r.Restoring, Stopped: r.Stopped,
	}
	out.Awaiting = append(out.Awaiting, r.Awaiting...)
	out.Encrypted = append(out.Encrypted, r.Encrypted...)
	out.Replaced = append(out.Replaced, r.Replaced...)
	maps.Copy(out.Addresses, r.Addresses)
	maps.Copy(out.Authorities, r.Authorities)
	maps.Copy(out.Retired, r.Retired)
	maps.Copy(out.Data, r.Data)
	maps.Copy(out.Labels, r.Labels)
	out.Placed = append(out.Placed, r.Placed...)
	out.Agents = map[topology.ID]Agent{}
	maps.Copy(out.Agents, r.Agents)
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
	r.Replaced = nil
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

// SetAddresses records the addresses that clusters have assigned to components, and removes all others.
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
	maps.DeleteFunc(
		r.Data,
		func(_ topology.ID, d Data) bool { return d.Removed && slices.Contains(clusters, d.Cluster) },
	)
}

// Remove returns the record in which components are marked as removed, with their data left behind. emptied: they hold
// no logical clusters.
func (r *Record) Remove(emptied bool, ids ...topology.ID) *Record {
	out := r.clone()
	for _, id := range ids {
		d := out.Data[id]
		d.Removed = true
		d.Emptied = emptied || d.Emptied
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
	out.Data = map[topology.ID]Data{}
	out.Labels = map[topology.ID]map[string]string{}
	out.Addresses = topology.Addresses{}
	maps.Copy(out.Addresses, r.Addresses)
	maps.Copy(out.Data, r.Data)
	maps.Copy(out.Labels, r.Labels)
	out.Agents = map[topology.ID]Agent{}
	maps.Copy(out.Agents, r.Agents)
	out.Moved = maps.Clone(r.Moved)
	out.Awaiting = slices.Clone(r.Awaiting)
	return &out
}

// ReleaseOf returns the release that a component writes its data with: the release of kcp, which the setup file says
// also for an image with a digest, or the tag of the image of an etcd.
func ReleaseOf(c *topology.Component, o *unstructured.Unstructured) string {
	if c.Kind == topology.Etcd {
		return ImageTag(c.Kind, o)
	}
	return c.Version
}

// ImageTag returns the tag of the image that a workload of a kind of components runs; empty if there is no tag.
func ImageTag(k topology.Kind, o *unstructured.Unstructured) string {
	image := Image(k, o)
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") && !strings.Contains(image, "@") {
		return image[at+1:]
	}
	return ""
}

// Image returns the image that a workload of a kind of components runs; empty if there is none.
func Image(k topology.Kind, o *unstructured.Unstructured) string {
	if c := Container(k, o); c != nil {
		return c.Image
	}
	return ""
}
