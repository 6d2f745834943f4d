// Package inventory keeps what a setup has on a cluster: the parent Secret of an ApplySet, with the installation that
// it belongs to. The inventory of the home cluster also has the clusters of the setup, the record, and the setups that
// were applied.
package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/retry"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/format"
)

// The ApplySet format, which kubectl understands too (kubectl: pkg/cmd/apply/applyset.go).
const (
	applySetID         = "applyset.kubernetes.io/id"
	applySetTooling    = "applyset.kubernetes.io/tooling"
	applySetGroupKinds = "applyset.kubernetes.io/contains-group-kinds"
)

// SecretType is the type of the Secret of an inventory.
const SecretType = corev1.SecretType(v1alpha1.Group + "/inventory")

const (
	// annotationApplying is on an inventory while a run writes. It remains if the run is interrupted.
	annotationApplying = v1alpha1.Group + "/applying"
	// annotationFormat is the format.Stamp of an inventory, as JSON.
	annotationFormat = v1alpha1.Group + "/format"
)

// The entries of the Secret. The owner is in every cluster, the others in the home cluster.
const (
	ownerKey    = "owner.json"
	clustersKey = "clusters.json"
	recordKey   = "installation.json"
	runKey      = "run.json"
)

// maxUpdates is how often an update of an inventory is repeated because its Secret has changed. Another run does not
// change it: this one has the lock.
const maxUpdates = 5

// Inventory describes what a setup has on a cluster.
type Inventory struct {
	// Kinds are the kinds of the setup's objects in the ApplySet format, sorted.
	Kinds []string
	// Applying is set while a run writes.
	Applying string
	// Owner is the installation whose inventory it is.
	Owner Owner
	// Clusters, History, Record and Run are only set on the home cluster. Run is the last run that has set Applying.
	Clusters []Placement
	History  []plan.Revision
	Record   *record.Record
	Run      *record.Run

	stamp  format.Stamp
	secret *corev1.Secret
}

// Owner is the installation that an inventory belongs to, and where its root shard is.
type Owner struct {
	Installation string    `json:"installation"`
	Home         Placement `json:"home"`
	// Previous is the ID that the installation had until its PKI was replaced. If that run was interrupted, some
	// inventories still have it.
	Previous string `json:"previous,omitempty"`
}

// Store reads and writes the inventories of a setup.
type Store struct {
	Topology *topology.Topology
	// Version is kcpctl's own version.
	Version string
}

// Read reads the inventory on a cluster: an empty one if it does not exist.
func (s *Store) Read(ctx context.Context, cl *cluster.Client) (*Inventory, error) {
	name := s.Topology.Object(topology.InventoryPart)
	secret, err := cl.Secret(ctx, name)
	if err != nil {
		return nil, err
	}
	if secret == nil {
		secret = cl.NewSecret(s.Topology.Name, name, SecretType)
		secret.Labels[applySetID] = s.Topology.ApplySet(cl.Cluster)
	}
	return decode(cl, secret)
}

// Update reads the inventory on a cluster, changes it, and writes it if that makes a difference.
func (s *Store) Update(ctx context.Context, cl *cluster.Client, change func(*Inventory)) error {
	for try := 1; ; try++ {
		inv, err := s.Read(ctx, cl)
		if err != nil {
			return err
		}
		change(inv)
		if err := s.write(ctx, cl, inv); !retry.IsWriteConflict(err) || try == maxUpdates {
			return err
		}
	}
}

func (s *Store) write(ctx context.Context, cl *cluster.Client, inv *Inventory) error {
	if err := inv.Writable(cl); err != nil {
		return err
	}
	cl.SetOn(inv.secret) // it is older than the metadata in the setup file, or than a change of it
	changed, err := inv.encode(s.Version)
	if err != nil || !changed {
		return err
	}
	_, err = cl.WriteSecret(ctx, inv.secret)
	return cl.Explain(err, "write inventory")
}

func decode(cl *cluster.Client, secret *corev1.Secret) (*Inventory, error) {
	inv := &Inventory{secret: secret, Applying: secret.Annotations[annotationApplying]}
	if raw := secret.Annotations[annotationFormat]; raw != "" {
		if err := json.Unmarshal([]byte(raw), &inv.stamp); err != nil {
			return nil, fmt.Errorf("read inventory (%s): %s: %w", cl.Where(), annotationFormat, err)
		}
	}
	tool, _, _ := strings.Cut(secret.Annotations[applySetTooling], "/")
	if tool != "" && tool != topology.ManagedBy && inv.stamp.Number == 0 {
		return nil, clierr.New(clierr.Conflict, "choose another name for the setup, or another namespace",
			"Secret/%s/%s (%s) is the inventory of another tool, %s", secret.Namespace, secret.Name, cl.Where(), tool)
	}
	if all := secret.Annotations[applySetGroupKinds]; all != "" {
		inv.Kinds = strings.Split(all, ",")
	}
	if err := inv.decodeData(secret.Data); err != nil {
		return nil, fmt.Errorf("read inventory (%s): %w", cl.Where(), err)
	}
	return inv, nil
}

func (i *Inventory) decodeData(data map[string][]byte) (err error) {
	if i.History, err = plan.DecodeHistory(data); err != nil {
		return err
	}
	for key, into := range map[string]any{clustersKey: &i.Clusters, ownerKey: &i.Owner, runKey: &i.Run} {
		if raw := data[key]; len(raw) > 0 {
			if err := json.Unmarshal(raw, into); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	i.Record, err = record.Decode(data[recordKey])
	return err
}

// Exists reports whether the inventory was on the cluster when it was read.
func (i *Inventory) Exists() bool { return i.secret != nil && i.secret.ResourceVersion != "" }

// UID is the UID of the inventory's Secret.
func (i *Inventory) UID() types.UID { return i.secret.UID }

// encode writes the inventory into its Secret, and reports whether that changed the Secret.
func (i *Inventory) encode(version string) (changed bool, err error) {
	notes := maps.Clone(i.secret.Annotations)
	if notes == nil {
		notes = map[string]string{}
	}
	notes[applySetGroupKinds] = strings.Join(i.Kinds, ",")
	delete(notes, annotationApplying)
	if i.Applying != "" {
		notes[annotationApplying] = i.Applying
	}
	data, err := i.encodeData(version)
	if err != nil {
		return false, fmt.Errorf("encode inventory: %w", err)
	}
	stamp := i.stamp.Next(version)
	raw, err := json.Marshal(stamp)
	if err != nil {
		return false, fmt.Errorf("encode inventory: %w", err)
	}
	notes[annotationFormat] = string(raw)
	changed = !maps.Equal(notes, i.secret.Annotations) || !maps.EqualFunc(data, i.secret.Data, slices.Equal)
	// Releases without formats read the name of the tool only, and refuse the inventory of another one.
	notes[applySetTooling] = stamp.Needed() + "/" + version
	i.stamp = stamp
	i.secret.Annotations = notes
	i.secret.Data = data
	return changed, nil
}

// Writable fails if only a later kcpctl may write the inventory, or the record in it.
func (i *Inventory) Writable(cl *cluster.Client) error {
	what := fmt.Sprintf("Secret/%s/%s (%s)", i.secret.Namespace, i.secret.Name, cl.Where())
	return errors.Join(i.stamp.Writable(what), i.Record.Writable())
}

// HasRecord reports whether a Secret is the inventory of a home cluster with a record.
func HasRecord(secret *corev1.Secret) bool { return len(secret.Data[recordKey]) > 0 }

// GroupKinds are the kinds of the items on a cluster, and others, in the ApplySet format, sorted. The items are in its
// namespace or without a namespace. Namespaces are not members of the set.
func GroupKinds(cl *cluster.Client, items []plan.Item, others ...string) []string {
	out := slices.Clone(others)
	for _, it := range items {
		if it.Workspace != "" || it.Cluster != cl.Name || it.GroupVersionKind == kind.Namespace.GroupVersionKind {
			continue
		}
		if it.Namespace == cl.Namespace || it.Namespace == "" {
			out = append(out, it.GroupKind().String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
