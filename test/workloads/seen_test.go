package workloads_test

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
)

// userPaths are the resources of users.
var userPaths = []string{deployments, statefulSets, services, configMaps, secrets, claims, policies}

// seeKCP takes note of a change in kcp. The world is locked.
func (w *world) seeKCP(e event) {
	k := id(e.Cluster, e.Path, e.Object.GetNamespace(), e.Object.GetName())
	before := w.objects[k]
	if e.Type == "DELETED" {
		delete(w.objects, k)
	} else {
		w.objects[k] = e.Object
		delete(w.vanished, k)
	}
	w.showLoop(k, before, w.objects[k])
	switch {
	case e.Path == clusters && e.Cluster == w.compute:
		w.seeCluster(e.Object.GetName(), before, w.objects[k])
	case e.Path == leases && e.Cluster == w.compute && e.Type != "DELETED":
		w.heartbeats[e.Object.GetName()] = e.at
	}
}

// showLoop logs how an object changes that is written too often, or that the flag model.show selects.
func (w *world) showLoop(k string, before, now *unstructured.Unstructured) {
	w.shown[k]++
	if *shown != "" && strings.Contains(k, *shown) && (now == nil || deleting(now)) {
		w.logf("    %s is deleted, or is being deleted", k)
	}
	often := w.shown[k] >= 100 && w.shown[k] <= 103
	if asked := *shown != "" && strings.Contains(k, *shown); now == nil || before == nil || !often && !asked {
		return
	}
	for _, path := range [][]string{{"metadata", "annotations"}, {"metadata", "labels"}, {"metadata", "finalizers"}, {"spec"}, {"status"}} {
		was, _, _ := unstructured.NestedFieldNoCopy(before.Object, path...)
		is, _, _ := unstructured.NestedFieldNoCopy(now.Object, path...)
		if encoded(was) != encoded(is) {
			w.logf("    %s changes %v from %s to %s", k, path, encoded(was), encoded(is))
		}
	}
}

// seeCluster checks the rules about a Cluster that has changed.
func (w *world) seeCluster(name string, before, now *unstructured.Unstructured) {
	if now == nil {
		w.seeRemoved(name, before)
		return
	}
	was, _ := conditionOf(before, api.ConditionReady)
	is, _ := conditionOf(now, api.ConditionReady)
	late := heartbeat.Interval + 5*time.Second
	if time.Since(w.restored) < heartbeat.Grace {
		late = heartbeat.Grace // the backup has the condition of another day
	}
	at := w.heartbeats[api.LeaseCluster(name)]
	if at.Before(w.outage.to) { // none could be written or seen then
		late += w.outage.to.Sub(slices.MaxFunc([]time.Time{at, w.outage.from}, time.Time.Compare))
	}
	if was == "False" && is == "True" && time.Since(at) > late {
		w.violate("ready", "Cluster %s becomes ready, and its last heartbeat was %s ago", name, time.Since(at).Round(time.Second))
	}
}

// seeRemoved checks that nothing of users runs in a cluster that was removed.
func (w *world) seeRemoved(name string, before *unstructured.Unstructured) {
	s := w.registered[name]
	delete(w.registered, name)
	if s == nil || w.used(s) || before == nil || before.GetAnnotations()[api.AnnotationForceRemoval] != "" {
		return
	}
	for _, p := range s.podsWhere(func(p *pod) bool { return p.state != ending }) {
		if w.objects[p.root] != nil && !w.left(p) {
			w.violate("drained", "Cluster %s is gone, and %s runs there", name, p)
			return
		}
	}
}

// conditionOf returns the status and the reason of a condition.
func conditionOf(o *unstructured.Unstructured, kind string) (status, reason string) {
	if o == nil {
		return "", ""
	}
	if c := api.ConditionIn(o, kind); c != nil {
		return string(c.Status), c.Reason
	}
	return "", ""
}

// reread reads all objects of kcp, after a backup was restored.
func (w *world) reread() {
	before := w.objects
	w.objects = map[string]*unstructured.Unstructured{}
	for _, path := range append([]string{clusters, namespaces, bindings}, userPaths...) {
		for _, o := range w.kcp.Objects(path) {
			k := id(o.GetAnnotations()["kcp.io/cluster"], path, o.GetNamespace(), o.GetName())
			w.objects[k] = o
			delete(w.vanished, k)
			delete(w.deleted, k)
			if was := before[k]; isRoot(o) && (was == nil || encoded(was.Object["spec"]) != encoded(o.Object["spec"]) || encoded(was.GetAnnotations()) != encoded(o.GetAnnotations())) {
				w.touched[k], w.excused[k] = "restored", "restored"
			}
		}
	}
	for k, o := range before {
		if w.objects[k] == nil && isRoot(o) {
			w.vanished[k] = time.Now()
		}
	}
}

// seeSite checks the rules about an object of a cluster that has changed. The world is locked.
func (w *world) seeSite(s *site, e event, before *unstructured.Unstructured) {
	k := e.Object.GetNamespace() + "/" + e.Object.GetName()
	if s.get(namespaces, "", e.Object.GetNamespace()) == nil {
		delete(s.administrators, e.Path+" "+k) // it is gone with its namespace
	}
	if want, ok := s.administrators[e.Path+" "+k]; ok && (e.Type == "DELETED" || encoded(e.Object.Object["data"]) != want) {
		w.violate("administrator", "%s %s of an administrator on %s is changed or removed", e.Object.GetKind(), k, s.name)
	}
	if e.Type == "DELETED" {
		w.seeGone(s, e)
		return
	}
	root := ownerOf(e.Path, e.Object)
	ns := s.get(namespaces, "", e.Object.GetNamespace())
	if root == "" || ns == nil || before != nil {
		return
	}
	ws, _, in, _ := split(root)
	if l := ns.GetLabels(); l[api.LabelWorkspace] != ws || l[api.LabelNamespace] != in {
		w.violate("isolation", "%s of %s is in the namespace of %s/%s on %s", e.Object.GetKind(), root, l[api.LabelWorkspace], l[api.LabelNamespace], s.name)
	}
}

// seeGone checks the rules about an object of a cluster that is gone.
func (w *world) seeGone(s *site, e event) {
	root := ownerOf(e.Path, e.Object)
	if e.Path == claims {
		w.seeClaimGone(s, e, root)
		return
	}
	if root == "" || !w.stays(root) || w.leaving(s) {
		return
	}
	o := w.objects[root]
	if o != nil && isEarlier(e.Object, o) {
		return // its user has deleted the root that it was made of, and created another one of the name
	}
	selected := text(e.Object, "spec", "selector", "app")
	for _, p := range s.podsWhere(func(p *pod) bool { return p.namespace == e.Object.GetNamespace() && p.state != ending }) {
		if o := w.objects[p.root]; o == nil || deleting(o) || w.orphaned(p) {
			continue // its user has deleted it, or a command has given it up
		}
		switch e.Path {
		case configMaps:
			for _, n := range p.needs {
				if n == (need{e.Path, e.Object.GetName()}) {
					w.violate("needed", "ConfigMap %s is removed from %s, and %s needs it", e.Object.GetName(), s.name, p)
				}
			}
		case policies:
			w.violate("protected", "NetworkPolicy %s is removed from %s, and %s runs there", e.Object.GetName(), s.name, p)
		case services:
			if selected == p.app && (o == nil || text(o, "spec", "selector", "app") == selected) {
				w.violate("protected", "Service %s is removed from %s, and %s runs there", e.Object.GetName(), s.name, p)
			}
		}
	}
}

// isEarlier reports whether an object of a cluster was made of a leaf that is older than a root.
func isEarlier(o, root *unstructured.Unstructured) bool {
	made, err := time.Parse(time.RFC3339, o.GetAnnotations()[api.Group+"/leaf-created"])
	return err == nil && made.Before(root.GetCreationTimestamp().Time)
}

// stays reports whether an object of a user has to stay: it exists, or is missing though no user has deleted it.
func (w *world) stays(root string) bool {
	if o := w.objects[root]; o != nil {
		return !deleting(o)
	}
	_, ok := w.vanished[root]
	return ok
}

// seeClaimGone checks that a volume was deleted by its user.
func (w *world) seeClaimGone(s *site, e event, root string) {
	if root == "" {
		root = e.Object.GetNamespace() // of a StatefulSet
	} else if w.deleted[root] != (time.Time{}) {
		return
	}
	if o := w.objects[root]; o != nil && deleting(o) {
		return
	}
	w.violate("data", "volume %s of %s is removed from %s, and no user has deleted it", e.Object.GetName(), root, s.name)
}

// lasting checks the rules that are about time. The world is locked.
func (w *world) lasting(now time.Time) {
	for _, name := range sortedKeys(w.registered) {
		s := w.registered[name]
		if w.broken(&link{process: &process{name: "controller", dead: w.controller == nil}, site: s}) != nil || w.down || s.refused || s.cut != "" || w.refuses(s) {
			s.healthy = now
		}
		if now.Sub(s.healthy) < 10*time.Minute {
			continue
		}
		for _, p := range s.podsWhere((*pod).running) {
			if w.left(p) {
				continue // a command or a backup has taken its leaf: the orphan goes when an administrator releases it
			}
			if at, ok := w.deleted[p.root]; ok && now.Sub(at) >= 10*time.Minute && w.objects[p.root] == nil && p.state != ending {
				w.violate("deleted", "%s runs %s after its user has deleted it", p, "10m")
			}
		}
	}
	if len(w.lost) > 100 {
		w.lost = w.lost[50:]
	}
}

// backup is a backup of kcp, with what was registered.
type backup struct {
	*fakeapi.Snapshot
	compute    string
	registered map[string]*site
}
