package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// The ApplySet format, which kubectl understands too (kubectl: pkg/cmd/apply/applyset.go).
const (
	applySetID         = "applyset.kubernetes.io/id"
	applySetTooling    = "applyset.kubernetes.io/tooling"
	applySetGroupKinds = "applyset.kubernetes.io/contains-group-kinds"
)

// annotationApplying is on an inventory while a run writes. It stays if the run is interrupted.
const annotationApplying = prefix + "applying"

// clustersKey is the entry of the home cluster's inventory that says where the setup is.
const clustersKey = "clusters.json"

// inventory remembers what a setup has on a cluster: the parent of an ApplySet. That of the home cluster remembers besides
// where the setup is, and the setups that were applied.
type inventory struct {
	secret *corev1.Secret
	kinds  []string
	// applying is set while a run writes.
	applying string
	// owner is the installation whose inventory it is.
	owner owner
	// clusters, history and record are those of the home cluster.
	clusters []placement
	history  []plan.Revision
	record   *record.Record
}

// placement is a cluster that the setup is on.
type placement struct {
	Name       string    `json:"name"`
	Context    string    `json:"context,omitempty"`
	Kubeconfig string    `json:"kubeconfig,omitempty"`
	Namespace  string    `json:"namespace"`
	UID        types.UID `json:"uid,omitempty"`
}

func (s *site) placement() placement {
	return placement{Name: s.Name, Context: s.context, Kubeconfig: s.Kubeconfig, Namespace: s.Namespace, UID: s.uid}
}

func (p placement) cluster() topology.Cluster {
	return topology.Cluster{Name: p.Name, Context: p.Context, Kubeconfig: p.Kubeconfig, Namespace: p.Namespace}
}

// is tells whether two placements have the same place in the setup, be it on the same cluster or not.
func (p placement) is(o placement) bool { return p.Name == o.Name && p.Namespace == o.Namespace }

// inventory reads the inventory of a site: an empty one if there is none.
func (r *Runtime) inventory(ctx context.Context, s *site) (*inventory, error) {
	name := r.topology.Object(topology.InventoryPart)
	secret, err := s.secret(ctx, name)
	if err != nil {
		return nil, err
	}
	if secret == nil {
		secret = s.newSecret(r.topology.Name, name, typeInventory)
		secret.Labels[applySetID] = r.topology.ApplySet(s.Cluster)
	}
	return decodeInventory(s, secret)
}

func decodeInventory(s *site, secret *corev1.Secret) (*inventory, error) {
	tool, _, _ := strings.Cut(secret.Annotations[applySetTooling], "/")
	if tool != "" && tool != topology.ManagedBy {
		return nil, clierr.New(clierr.Conflict, "choose another name for the setup, or another namespace",
			"Secret/%s/%s (%s) is the inventory of another tool, %s", secret.Namespace, secret.Name, s.where(), tool)
	}
	inv := &inventory{secret: secret, applying: secret.Annotations[annotationApplying]}
	if all := secret.Annotations[applySetGroupKinds]; all != "" {
		inv.kinds = strings.Split(all, ",")
	}
	var err error
	if inv.history, err = plan.DecodeHistory(secret.Data); err != nil {
		return nil, fmt.Errorf("read inventory (%s): %w", s.where(), err)
	}
	if raw := secret.Data[clustersKey]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &inv.clusters); err != nil {
			return nil, fmt.Errorf("read inventory (%s): %w", s.where(), err)
		}
	}
	if raw := secret.Data[ownerKey]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &inv.owner); err != nil {
			return nil, fmt.Errorf("read inventory (%s): %w", s.where(), err)
		}
	}
	if inv.record, err = record.Decode(secret.Data[recordKey]); err != nil {
		return nil, fmt.Errorf("read inventory (%s): %w", s.where(), err)
	}
	return inv, nil
}

// exists tells whether the inventory has been written before.
func (i *inventory) exists() bool { return i.secret.ResourceVersion != "" }

// encode writes an inventory into its Secret. It tells whether that changed the Secret.
func (i *inventory) encode(version string) (changed bool, err error) {
	notes := maps.Clone(i.secret.Annotations)
	if notes == nil {
		notes = map[string]string{}
	}
	notes[applySetGroupKinds] = strings.Join(i.kinds, ",")
	delete(notes, annotationApplying)
	if i.applying != "" {
		notes[annotationApplying] = i.applying
	}
	data, err := plan.EncodeHistory(i.history)
	if err != nil {
		return false, err
	}
	if len(i.history) == 0 {
		data = map[string][]byte{}
	}
	if len(i.clusters) > 0 {
		if data[clustersKey], err = json.Marshal(i.clusters); err != nil {
			return false, fmt.Errorf("encode inventory: %w", err)
		}
	}
	if i.owner.Installation != "" {
		if data[ownerKey], err = json.Marshal(i.owner); err != nil {
			return false, fmt.Errorf("encode inventory: %w", err)
		}
	}
	if !i.record.Empty() {
		if data[recordKey], err = i.record.Encode(); err != nil {
			return false, err
		}
	}
	changed = !maps.Equal(notes, i.secret.Annotations) || !maps.EqualFunc(data, i.secret.Data, slices.Equal)
	notes[applySetTooling] = topology.ManagedBy + "/" + version
	i.secret.Annotations, i.secret.Data = notes, data
	return changed, nil
}

// save writes an inventory if it has changed.
func (r *Runtime) save(ctx context.Context, s *site, i *inventory) error {
	changed, err := i.encode(r.options.Version)
	if err != nil || !changed {
		return err
	}
	if i.secret, err = s.writeSecret(ctx, i.secret); err != nil {
		return s.explain(err, "write inventory")
	}
	return nil
}

// amends is how often a change of an inventory is made anew because somebody else wrote to its Secret. Another run does not:
// this one has the lock.
const amends = 5

// amend reads the inventory of a site, changes it, and writes it.
func (r *Runtime) amend(ctx context.Context, s *site, change func(*inventory)) error {
	for try := 1; ; try++ {
		inv, err := r.inventory(ctx, s)
		if err != nil {
			return err
		}
		change(inv)
		if err := r.save(ctx, s, inv); !isTaken(err) || try == amends {
			return err
		}
	}
}

// groupKinds are the kinds of a plan's items on a site in the words of the ApplySet format, sorted. Namespaces are no
// members of the set.
func groupKinds(s *site, items []plan.Item, also ...string) []string {
	out := slices.Clone(also)
	for i := range items {
		if it := &items[i]; it.Cluster == s.Name && it.Namespace == s.Namespace {
			out = append(out, it.GroupKind().String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// wanted are the items of a plan that will exist.
func wanted(p *plan.Plan) []plan.Item {
	return slices.DeleteFunc(slices.Clone(p.Items), func(it plan.Item) bool { return it.Action == plan.Delete })
}

// placements are where the setup is now. Those of before stay as they were where only the name of a context changed, which
// depends on who runs.
func (r *Runtime) placements(before []placement) []placement {
	var out []placement
	for _, s := range r.all() {
		now := s.placement()
		for _, b := range before {
			if b.is(now) && (b.UID == now.UID || now.UID == "") {
				now = b
			}
		}
		out = append(out, now)
	}
	return append(out, r.lost...)
}

// Begin remembers all objects of a plan, and the record, before the first object is written.
func (r *Runtime) Begin(ctx context.Context, p *plan.Plan, rec *record.Record) error {
	if p.Empty() {
		return nil
	}
	return r.everywhere(quiet(ctx), func(ctx context.Context, s *site) error {
		return r.amend(ctx, s, func(inv *inventory) {
			inv.kinds = groupKinds(s, p.Items, inv.kinds...)
			inv.applying = fmt.Sprintf("since %s by %s", r.options.Now().UTC().Format(time.RFC3339), r.options.Holder)
			r.identify(s, inv, rec)
			if s == r.home {
				inv.clusters = r.placements(inv.clusters)
			}
		})
	})
}

// Finish deletes what the plan deletes, and remembers exactly what there is, the record, and what was applied. It writes
// nothing that it has remembered already.
func (r *Runtime) Finish(ctx context.Context, p *plan.Plan, rec *record.Record, a plan.Applied) error {
	ctx = quiet(ctx)
	if err := r.Delete(ctx, p.Deletions()); err != nil {
		return err
	}
	if err := r.leave(ctx); err != nil {
		return err
	}
	if err := r.everywhere(ctx, func(ctx context.Context, s *site) error {
		if s == r.home {
			return nil // last, because it says that the run is finished
		}
		return r.settle(ctx, s, p, rec, func(*inventory) {})
	}); err != nil {
		return err
	}
	if err := r.settle(ctx, r.home, p, rec, func(inv *inventory) {
		inv.clusters = r.placements(inv.clusters)
		inv.history = plan.Remember(inv.history, plan.Revision{
			Time: r.options.Now(), Version: r.options.Version, User: r.options.Holder.User + "@" + r.options.Holder.Host,
			Setup: a.Setup, Only: a.Only,
		})
	}); err != nil {
		return err
	}
	return r.remember()
}

// settle makes the inventory of a site exact.
func (r *Runtime) settle(ctx context.Context, s *site, p *plan.Plan, rec *record.Record, also func(*inventory)) error {
	return r.amend(ctx, s, func(inv *inventory) {
		inv.kinds, inv.applying = groupKinds(s, wanted(p)), ""
		r.identify(s, inv, rec)
		also(inv)
	})
}

// History returns the setups that were applied last, oldest first.
func (r *Runtime) History(ctx context.Context) ([]plan.Revision, error) {
	if err := r.home.connect(ctx); err != nil {
		return nil, err
	}
	inv, err := r.inventory(ctx, r.home)
	if err != nil {
		return nil, err
	}
	return inv.history, nil
}
