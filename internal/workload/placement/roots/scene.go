package roots

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

type scene struct {
	resources []schema.GroupVersionResource
	clusters  []string
	// roots are those that are where workloads need them, and objects are the roots that workloads can need.
	roots   map[splitter.Ref]watch.Object
	objects map[splitter.Ref]*unstructured.Unstructured
	items   map[splitter.Ref]item
	// leaves are the leaves of each root by the text of its Ref and by cluster, also those that are being deleted, and
	// objects to which a user has given the label of a cluster. Nil: one was decided a moment ago.
	leaves map[string]map[string]*unstructured.Unstructured
	// workloads are the leaves of workloads, and roots with the clusters that they were scheduled to. owners are the
	// roots, also those that are being deleted.
	workloads []splitter.Placed
	owners    map[splitter.Ref]*unstructured.Unstructured
	// pending are the roots of workloads, and decided what was decided about them.
	pending map[item]watch.Object
	decided map[splitter.Target]decided
	scaled  map[splitter.Target]bool
	// complete are the endpoints of which all objects were known before the scene was made.
	complete map[string]bool
	// published are the APIs, and givenUp the clusters that are ignored, see usedOf.
	published *Published
	givenUp   map[string]bool
}

// refs returns the roots of followers, sorted.
func (sc *scene) refs() []splitter.Ref {
	return slices.SortedFunc(maps.Keys(sc.roots), func(a, b splitter.Ref) int {
		return cmp.Compare(a.String(), b.String())
	})
}

// look returns what is in a namespace. No lock is held while objects are unpacked: there can be thousands.
func (f *followers) look(ns item) *scene {
	now := f.facts()
	sc := newScene(now.Published, now.Clusters, now.givenUp)
	for _, endpoint := range now.endpoints {
		sc.complete[strings.TrimRight(endpoint, "/")] = now.set.CompleteFor([]string{endpoint}, sc.resources)
	}
	last := map[item]decided{}
	objects := map[item]watch.Object{}
	for _, r := range sc.resources {
		for _, o := range now.set.In(r, ns.Cluster, ns.Namespace) {
			objects[item{r, watch.KeyOf(o.Unstructured)}] = o
		}
	}
	for i, o := range objects {
		if d, known := f.decisions.of(i); known {
			last[i] = d
		}
		sc.add(i, o, last)
	}
	sc.needAsRoots()
	sc.addChosen(last)
	return sc
}

func newScene(published *Published, clusters []*api.Cluster, givenUp map[string]bool) *scene {
	sc := &scene{
		published: published, givenUp: givenUp,
		resources: published.watched(), roots: map[splitter.Ref]watch.Object{},
		objects: map[splitter.Ref]*unstructured.Unstructured{},
		items:   map[splitter.Ref]item{}, leaves: map[string]map[string]*unstructured.Unstructured{},
		pending: map[item]watch.Object{}, owners: map[splitter.Ref]*unstructured.Unstructured{},
		decided: map[splitter.Target]decided{}, scaled: map[splitter.Target]bool{},
		complete: map[string]bool{},
	}
	for _, c := range clusters {
		sc.clusters = append(sc.clusters, c.Name)
	}
	return sc
}

// needAsRoots makes leaves need what their roots name, and not what they name themselves: the syncer of a cluster can
// write its leaves, and would get any Secret of the namespace. What a leaf of an earlier generation names is there.
func (sc *scene) needAsRoots() {
	for i, w := range sc.workloads {
		cluster := w.Object.GetLabels()[api.LabelCluster]
		if root := sc.ownerOf(w.GroupResource, w.Object.GetName(), cluster); root != nil {
			sc.workloads[i].Name, sc.workloads[i].Object = root.GetName(), root
		}
	}
}

// ownerOf returns the root with the leaf of a name, or nil: a user has created it. What the leaf says itself does not
// count.
func (sc *scene) ownerOf(gr schema.GroupResource, leaf, cluster string) *unstructured.Unstructured {
	name, made := strings.CutSuffix(leaf, separator+cluster)
	if cluster == "" || !made {
		return nil
	}
	if root := sc.owners[splitter.Ref{GroupResource: gr, Name: name}]; root != nil {
		return root
	}
	for ref, root := range sc.owners { // its name was too long
		if ref.GroupResource == gr && api.LeafName(ref.Name, cluster) == leaf {
			return root
		}
	}
	return nil
}

// addChosen adds as workloads the objects whose place a user has chosen. What they name, such as the pull secrets of a
// ServiceAccount, is there.
func (sc *scene) addChosen(last map[item]decided) {
	for ref, o := range sc.objects {
		if target, ok := splitter.ScaledBy(o); ok && o.GetDeletionTimestamp() == nil {
			sc.scaled[target] = true
		}
		if splitter.Follows(ref.GroupResource, o) || o.GetDeletionTimestamp() != nil {
			continue
		}
		on := slices.AppendSeq(slices.Clone(last[sc.items[ref]].clusters), maps.Keys(sc.leaves[ref.String()]))
		sc.workloads = append(sc.workloads, splitter.Placed{Ref: ref, Object: o, Clusters: on})
	}
}

// add adds an object to a scene, unless its cluster is given up. Last has the last decisions.
func (sc *scene) add(i item, o watch.Object, last map[item]decided) {
	gr := i.GroupResource()
	ref := splitter.Ref{GroupResource: gr, Name: o.GetName()}
	cluster := o.GetLabels()[api.LabelCluster]
	if sc.givenUp[cluster] {
		return
	}
	root := splitter.Ref{GroupResource: gr, Name: rootName(o.Unstructured)}
	if cluster == "" && !splitter.CanFollow(gr) {
		sc.owners[ref] = o.Unstructured
	}
	switch {
	case splitter.CanFollow(gr) && sc.published.removed(i.GroupVersionResource):
	case splitter.CanFollow(gr) && cluster != "":
		sc.addLeaf(root, cluster, o.Unstructured)
	case splitter.CanFollow(gr):
		sc.objects[ref], sc.items[ref] = o.Unstructured, i
		if splitter.Follows(gr, o.Unstructured) && o.GetDeletionTimestamp() == nil {
			sc.roots[ref] = o
		}
	case cluster != "":
		sc.workloads = append(sc.workloads,
			splitter.Placed{Ref: root, Object: o.Unstructured, Clusters: []string{cluster}})
		sc.addLeaf(root, cluster, o.Unstructured)
	case o.GetDeletionTimestamp() == nil:
		d, known := last[i]
		for _, c := range d.clusters {
			sc.addLeaf(ref, c, sc.leaves[ref.String()][c])
		}
		sc.workloads = append(sc.workloads, splitter.Placed{Ref: ref, Object: o.Unstructured, Clusters: d.clusters})
		sc.pending[i] = o
		if known {
			sc.decided[splitter.TargetOf(ref, o.Unstructured)] = d
		}
	}
}

// addLeaf records the leaf of a root, or that there is one soon.
func (sc *scene) addLeaf(root splitter.Ref, cluster string, leaf *unstructured.Unstructured) {
	name := root.String()
	if sc.leaves[name] == nil {
		sc.leaves[name] = map[string]*unstructured.Unstructured{}
	}
	sc.leaves[name][cluster] = leaf
}

// wanted returns the leaves that a root should have: where workloads need it. A leaf is kept where a workload runs that
// ever needed it: pods of another revision may need it, and a rollback may start some. It is also kept where it has
// data, and where what runs is not known. Complete reports whether all objects are known.
func (sc *scene) wanted(ref splitter.Ref, needed map[string][]string, complete bool) map[string]splitter.Share {
	shares := map[string]splitter.Share{}
	kind, _ := kinds.OfResource(ref.GroupResource)
	for cluster, by := range needed {
		if slices.Contains(sc.clusters, cluster) {
			shares[cluster] = splitter.Share{NeededBy: by}
		}
	}
	for cluster, leaf := range sc.leaves[ref.String()] {
		if !splitter.IsLeafOf(leaf, sc.roots[ref].Unstructured) {
			continue
		}
		unknown := !complete || !slices.Contains(sc.clusters, cluster)
		by := strings.FieldsFunc(leaf.GetAnnotations()[api.AnnotationNeededBy], func(r rune) bool { return r == ',' })
		share, here := shares[cluster]
		for _, workload := range by {
			// It can have pods there: its leaf is there, or was decided a moment ago. No pod needs an autoscaler.
			_, runs := sc.leaves[workload][cluster]
			if (unknown || runs && kind.TargetPath == nil || !sc.watches(workload)) && !slices.Contains(share.NeededBy, workload) {
				share.NeededBy = append(slices.Clone(share.NeededBy), workload)
				here = true
			}
		}
		switch {
		case here:
			shares[cluster] = share
		case unknown || kind.Data == kinds.AlwaysData:
			shares[cluster] = splitter.Share{NeededBy: by}
		}
	}
	return shares
}

// collisions returns the leaves of a root, and the objects that have the names of leaves which it should have.
func (sc *scene) collisions(ref splitter.Ref,
	shares map[string]splitter.Share) map[string]*unstructured.Unstructured {
	out := map[string]*unstructured.Unstructured{}
	maps.Copy(out, sc.leaves[ref.String()])
	for cluster := range shares {
		leaf := splitter.Ref{GroupResource: ref.GroupResource, Name: api.LeafName(ref.Name, cluster)}
		if o := sc.objects[leaf]; o != nil {
			out[cluster] = o
		}
	}
	return out
}

// watches reports whether the resource of a workload, as in the annotation needed-by, is watched: whether the workload
// exists is known.
func (sc *scene) watches(workload string) bool {
	resource, _, _ := strings.Cut(workload, "/")
	return slices.ContainsFunc(sc.resources,
		func(r schema.GroupVersionResource) bool { return r.GroupResource().String() == resource })
}

// divided returns the shares of an object with the parts of its numbers. It returns false while these are not known.
func (sc *scene) divided(ref splitter.Ref, shares map[string]splitter.Share) (map[string]splitter.Share, bool) {
	root := sc.roots[ref].Unstructured
	if len(shares) == 0 || !splitter.HasNumbers(root) {
		return sc.bounded(ref, shares)
	}
	replicas, known := sc.protected(root)
	if !known || replicas == nil {
		return shares, known
	}
	parts := splitter.DivideNumbers(root, replicas)
	for cluster, share := range shares {
		share.Numbers = parts[cluster] // a cluster whose replicas are not known has the numbers as they are
		shares[cluster] = share
	}
	return shares, true
}

// protected returns the replicas by cluster of the workloads that an object selects, or nil if one of them is whole on
// each cluster, or has an autoscaler, which changes them at any time: then the object is whole on each cluster, too. It
// returns false if a decision is not known.
func (sc *scene) protected(o *unstructured.Unstructured) (map[string]int64, bool) {
	replicas := map[string]int64{}
	for i, root := range sc.pending {
		if !splitter.Selects(o, root.Unstructured) {
			continue
		}
		target := splitter.TargetOf(refOf(i), root.Unstructured)
		d, known := sc.decided[target]
		switch {
		case !known:
			return nil, false
		case sc.scaled[target], !d.divided && len(d.shares) > 1:
			return nil, true
		}
		for cluster, n := range d.shares {
			replicas[cluster] += n
		}
	}
	return replicas, true
}

// bounded returns the shares of an autoscaler with its bounds, which are divided as the replicas of the workload are.
// It returns false while these are not known. Shares of other objects are not changed.
func (sc *scene) bounded(ref splitter.Ref, shares map[string]splitter.Share) (map[string]splitter.Share, bool) {
	root := sc.roots[ref].Unstructured
	target, ok := splitter.ScaledBy(root)
	if !ok || len(shares) == 0 {
		return shares, true
	}
	d, known := sc.decided[target]
	if !known || !d.divided {
		return shares, known
	}
	bounds := d.bound(splitter.BoundsOf(root).Divide(d.shares))
	for cluster, share := range shares {
		b, here := bounds[cluster]
		leaf := sc.leaves[ref.String()][cluster]
		switch {
		case here:
		case leaf != nil && !slices.Contains(sc.clusters, cluster):
			b = splitter.BoundsOf(leaf) // no decision includes that cluster now
		default:
			delete(shares, cluster)
			continue
		}
		share.Numbers = b.Numbers()
		shares[cluster] = share
	}
	return shares, true
}
