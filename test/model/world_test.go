package model_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// place is a namespace of a cluster.
type place struct{ cluster, namespace string }

// world is the environment that operators share: clusters, and the processes there. It observes the writes of kcpctl
// and reports violations.
type world struct {
	mu       sync.Mutex
	clusters []*cluster
	version  int64
	stores   int
	builds   int // of clusters
	volumes  map[types.UID]*volume
	etcds    map[key]*process
	servers  map[key]*process
	external map[string]*store
	spaces   []*workspace
	// owners has the installation of each place, installations those by the place of their root shard.
	owners        map[place]*installation
	installations map[place]*installation
	// known is every authority that was ever trusted on purpose, also by installations that were purged: PKI
	// directories still have them. keys has the key IDs of all authorities, by fingerprint.
	known map[string]bool
	keys  map[string]string
	// slowVolumes is the duration of the deletion of a volume.
	slowVolumes time.Duration
	// actor is the last started command.
	actor    *command
	changes  int
	problems []string
	log      func(string, ...any)
}

// installation is one kcp.
type installation struct {
	home place
	// adopters has the commands that introduced an authority, by its name.
	adopters map[string]*command
	// signs is the current authority, by its name; retired are the previous ones; known are those of the world; dropped
	// is trusted no longer; droppable has been removed from the store by a rotation; recorded has been in the record.
	signs                                        map[string]string
	retired, known, dropped, droppable, recorded map[string]bool
	// leaving has the components that leave their data on purpose, until an up has completed that.
	leaving map[topology.ID]bool
	// restored means that its Secrets were restored: the inventory does not have places that were added since.
	restored bool
}

func newWorld(clusters ...string) *world {
	w := &world{
		volumes: map[types.UID]*volume{}, etcds: map[key]*process{}, servers: map[key]*process{}, external: map[string]*store{},
		owners: map[place]*installation{}, installations: map[place]*installation{}, known: map[string]bool{}, keys: map[string]string{}, log: func(string, ...any) {},
	}
	for _, name := range clusters {
		c := &cluster{name: name}
		w.build(c)
		w.clusters = append(w.clusters, c)
	}
	return w
}

func (w *world) logf(format string, args ...any) { w.log(format, args...) }

func (w *world) violate(format string, args ...any) {
	by := ""
	if w.actor != nil {
		by = " [" + w.actor.String() + "]"
	}
	w.problems = append(w.problems, fmt.Sprintf(format, args...)+by)
}

func (w *world) cluster(name string) *cluster {
	return w.clusters[slices.IndexFunc(w.clusters, func(c *cluster) bool { return c.name == name })]
}

// object returns an object of a place.
func (w *world) object(p place, resource, name string) *unstructured.Unstructured {
	if p.cluster == "" {
		return nil
	}
	return w.cluster(p.cluster).objects[key{resource, p.namespace, name}]
}

// holder returns the holder of the Lease of a setup.
func (w *world) holder(home place, setup string) string {
	o := w.object(home, leases, setup+"-lock")
	if o == nil {
		return ""
	}
	holder, _, _ := unstructured.NestedString(o.Object, "spec", "holderIdentity")
	return holder
}

func (w *world) installation(home place) *installation {
	if w.installations[home] == nil {
		w.installations[home] = &installation{
			home: home, signs: map[string]string{}, adopters: map[string]*command{},
			retired: map[string]bool{}, known: w.known, dropped: map[string]bool{}, droppable: map[string]bool{},
			recorded: map[string]bool{}, leaving: map[topology.ID]bool{},
		}
	}
	return w.installations[home]
}

// written checks a write before it is executed.
func (w *world) written(s *command, c *cluster, k key, verb string, live, next *unstructured.Unstructured) {
	if k.resource == leases {
		return
	}
	w.actor, s.overtaken = s, false
	s.changes++
	w.changes++
	if k.resource == namespaces {
		return
	}
	if holder := w.holder(s.home, s.setup); holder != s.holder.String() {
		w.violate("%s %s without the lock, which %q holds", verb, k, holder)
	}
	i, at := w.installation(s.home), place{c.name, k.namespace}
	if w.owners[at] == nil && next != nil {
		w.owners[at] = i
	}
	if w.owners[at] != nil && w.owners[at] != i {
		w.violate("%s %s: it belongs to another installation", verb, k)
	}
	if next == nil {
		w.deleted(s, c, k, live)
		return
	}
	w.authorities(s, i, live, next)
}

// deleted checks a deletion.
func (w *world) deleted(s *command, c *cluster, k key, live *unstructured.Unstructured) {
	at := place{c.name, k.namespace}
	switch k.resource {
	case deployments, statefulSets:
		all := w.servers
		if k.resource == statefulSets {
			all = w.etcds
		}
		p := all[key{c.name + " " + k.resource, k.namespace, k.name}]
		if p == nil || s.is("down") {
			return
		}
		root := w.root(p.owner)
		for _, o := range w.holding(p.store) {
			if s.mayLose(ownerOf(p.id)) || p.owner.leaving[ownerOf(p.id)] {
				w.forget(o)
				continue
			}
			name := o.of.Name()
			unknown := s.is("remove-shard", name) && o.of.Kind() == topology.Shard && root != nil && root.store.shards[name] == nil
			if !o.store.ephemeral && !unknown {
				w.violate("deletes %s, on which %s lives", p.id, o.name)
			}
		}
	case claims:
		v := w.volumes[live.GetUID()]
		if v == nil {
			return
		}
		for _, o := range w.holding(v.store) {
			if s.is("down") && s.has("--purge") {
				w.forget(o)
				continue
			}
			w.violate("deletes %s, in which %s is", k, o.name)
		}
	case secrets:
		if k.name == s.setup+"-inventory" {
			if w.runs(at) {
				w.violate("deletes %s, and components run in %v", k, at)
			}
			if w.owners[at] != nil && at == w.owners[at].home {
				w.purged(w.owners[at])
			}
			delete(w.owners, at)
		}
	}
}

// purged forgets an installation, and what it had in external etcds.
func (w *world) purged(i *installation) {
	w.spaces = slices.DeleteFunc(w.spaces, func(o *workspace) bool { return o.owner == i })
	maps.DeleteFunc(w.external, func(_ string, s *store) bool { return len(w.holding(s)) == 0 })
	delete(w.installations, i.home)
}

func jsonOf(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// lasting checks invariants that hold between any two steps.
func (w *world) lasting() {
	w.actor = nil
	for at, i := range w.owners {
		if !w.runs(at) {
			continue
		}
		home := w.object(i.home, secrets, setupName+"-inventory")
		if home == nil {
			w.violate("components run in %v, and there is no inventory in %v", at, i.home)
			continue
		}
		if w.object(at, secrets, setupName+"-inventory") == nil {
			w.violate("components run in %v, and there is no inventory", at)
		}
		var known []struct{ Namespace, UID string }
		data, _, _ := unstructured.NestedStringMap(home.Object, "data")
		raw, _ := base64.StdEncoding.DecodeString(data["clusters.json"])
		_ = json.Unmarshal(raw, &known)
		if !i.restored && !slices.ContainsFunc(known, func(p struct{ Namespace, UID string }) bool {
			return p.Namespace == at.namespace && p.UID == string(w.cluster(at.cluster).uid)
		}) {
			w.violate("components run in %v, and the inventory in %v does not know of it", at, i.home)
		}
	}
}

// runs reports whether a place has workloads.
func (w *world) runs(at place) bool {
	c := w.cluster(at.cluster)
	return len(c.sorted(deployments, at.namespace))+len(c.sorted(statefulSets, at.namespace)) > 0
}

// complete checks invariants that hold after a successful up without --only.
func (w *world) complete(s *command, t *topology.Topology) {
	i := w.installation(s.home)
	for _, o := range slices.Clone(w.spaces) {
		if o.owner == i && t.Component(o.of) == nil && (s.mayLose(o.of) || i.leaving[o.of]) {
			w.forget(o) // the component was down already, so that this command did not delete it
		}
	}
	for _, lost := range w.unreachable(i) {
		w.violate("up succeeded, and %s cannot be reached", lost)
	}
	clear(i.leaving)
	for at, owner := range w.owners {
		if owner != i {
			continue
		}
		o := w.object(at, secrets, s.setup+"-inventory")
		if o == nil {
			continue
		}
		if have, want := withoutVolumes(o.GetAnnotations()["applyset.kubernetes.io/contains-group-kinds"]), w.kinds(at); have != want {
			w.violate("up succeeded, and the inventory in %v says %q, not %q", at, have, want)
		}
	}
	w.recorded(s, i)
}

// kinds returns the kinds of the objects that a setup has applied in a place.
func (w *world) kinds(at place) string {
	var out []string
	for k, o := range w.cluster(at.cluster).objects {
		if k.namespace == at.namespace && k.resource != claims && o.GetLabels()["applyset.kubernetes.io/part-of"] != "" {
			out = append(out, o.GroupVersionKind().GroupKind().String())
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ",")
}

// withoutVolumes leaves out volumes: removed shards leave theirs, which no inventory lists.
func withoutVolumes(kinds string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(kinds, ","), func(k string) bool { return k == "PersistentVolumeClaim" }), ",")
}

// recorded compares the authorities of the record with the trusted ones.
func (w *world) recorded(s *command, i *installation) {
	inv, ca := w.object(i.home, secrets, s.setup+"-inventory"), w.object(i.home, configMaps, s.setup+"-ca")
	if inv == nil || ca == nil {
		w.violate("up succeeded, and there is no inventory or no bundle in %v", i.home)
		return
	}
	data, _, _ := unstructured.NestedStringMap(inv.Object, "data")
	raw, _ := base64.StdEncoding.DecodeString(data["installation.json"])
	rec, err := record.Decode(raw)
	if err != nil {
		w.violate("the record: %v", err)
		return
	}
	bundles, _, _ := unstructured.NestedStringMap(ca.Object, "data")
	for file, bundle := range bundles {
		r := pki.RotationOf(topology.CA(strings.TrimSuffix(file, ".crt")))
		if have := fingerprints(bundle); len(have) == 0 || rec.Authorities[r.Key()].Current != have[0] {
			w.violate("the record says that another %s signs than the first that is trusted", r)
		}
	}
}
