package workloads_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// state is that of a pod.
type state int

const (
	pending state = iota
	starting
	ready_
	ending
)

// How long pods take to start and to end.
const (
	startTime = 4 * time.Second
	endTime   = 3 * time.Second
)

// outdated is why a pod stops that is replaced by one of another template.
const outdated = "the template has changed"

// scaled is why a pod stops of a workload that has too many, without their number.
const scaled = "it is scaled to "

// pod is a pod of a site.
type pod struct {
	site            *site
	namespace, name string
	// path and workload are its owner, and owner the UID. root is what that stands for: see ownerOf.
	path, workload, owner, root string
	// app has the labels of the pod, and rev the user's version of the template. revision is that of the cluster.
	app, rev, revision string
	needs              []need
	state              state
	created, due       time.Time
}

// need is an object of its namespace without which a pod does not start.
type need struct{ path, name string }

func revisionOf(o *unstructured.Unstructured) string {
	template, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
	return api.Hash(8, encoded(template))
}

// podsOf returns the pods of a workload that do not end, sorted by name.
func (s *site) podsOf(o *unstructured.Unstructured) []*pod {
	return s.podsWhere(func(p *pod) bool { return p.owner == string(o.GetUID()) && p.state != ending })
}

func (s *site) podsWhere(match func(*pod) bool) (out []*pod) {
	for _, k := range sortedKeys(s.pods) {
		if match(s.pods[k]) {
			out = append(out, s.pods[k])
		}
	}
	return out
}

// steer makes the pods of a workload what it asks for.
func (w *world) steer(s *site, path string, o *unstructured.Unstructured) {
	all, revision := s.podsOf(o), revisionOf(o)
	left := s.podsWhere(func(p *pod) bool { return p.owner == string(o.GetUID()) })
	if deleting(o) {
		for _, p := range all {
			w.stopPod(p, "the "+o.GetKind()+" is deleted")
		}
		if len(left) == 0 {
			s.server.Release("", path, o.GetNamespace(), o.GetName())
		}
		return
	}
	n := 1
	if _, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas"); ok {
		n = number(o, "spec", "replicas")
	}
	old := slices.DeleteFunc(slices.Clone(all), func(p *pod) bool { return p.revision == revision })
	oneByOne := path == statefulSets || text(o, "spec", "strategy", "type") == "Recreate"
	switch {
	case oneByOne && len(old) > 0:
		for _, p := range old {
			w.stopPod(p, outdated)
		}
	case oneByOne && len(left) > len(all):
	default:
		w.roll(s, path, o, all, n, revision)
	}
	all = s.podsOf(o)
	slices.SortFunc(all, func(a, b *pod) int { // which to remove first
		return cmp.Or(cmp.Compare(a.state, b.state), b.created.Compare(a.created), strings.Compare(b.name, a.name))
	})
	for i := range max(0, len(all)-n-min(1, len(old))) {
		w.stopPod(all[i], fmt.Sprint(scaled, n))
	}
}

// roll starts pods, and stops those of another template when they are replaced.
func (w *world) roll(s *site, path string, o *unstructured.Unstructured, all []*pod, n int, revision string) {
	current, available, old := 0, 0, []*pod{}
	for _, p := range all {
		if p.revision == revision {
			current++
		} else {
			old = append(old, p)
		}
		if p.state == ready_ {
			available++
		}
	}
	for _, p := range old {
		switch {
		case p.state != ready_:
			w.stopPod(p, outdated)
		case available > n:
			available--
			w.stopPod(p, outdated)
		}
	}
	for len(all) < n+min(1, len(old)) && current < n {
		all = append(all, w.startPod(s, path, o, revision))
		current++
	}
}

// startPod makes a pod. The namespace of a StatefulSet's pod has a volume for it.
func (w *world) startPod(s *site, path string, o *unstructured.Unstructured, revision string) *pod {
	p := &pod{
		site: s, namespace: o.GetNamespace(), path: path, workload: o.GetName(), owner: string(o.GetUID()), root: ownerOf(path, o), revision: revision,
		created: time.Now(), app: text(o, "spec", "template", "metadata", "labels", "app"), rev: text(o, "spec", "template", "metadata", "labels", "rev"),
	}
	s.numbered++
	p.name = fmt.Sprintf("%s-%05d", o.GetName(), s.numbered)
	if path == statefulSets {
		for i := 0; ; i++ {
			if p.name = fmt.Sprintf("%s-%d", o.GetName(), i); s.pods[p.key()] == nil {
				break
			}
		}
		claim := "data-" + p.name
		if s.get(claims, p.namespace, claim) == nil {
			s.server.Merge("", claims, p.namespace, claim, object(`{apiVersion: v1, kind: PersistentVolumeClaim}`))
		}
	}
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		from, _, _ := unstructured.NestedSlice(c.(map[string]any), "envFrom")
		for _, e := range from {
			name, _, _ := unstructured.NestedString(e.(map[string]any), "configMapRef", "name")
			p.needs = append(p.needs, need{configMaps, name})
		}
	}
	volumes, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "volumes")
	for _, v := range volumes {
		name, _, _ := unstructured.NestedString(v.(map[string]any), "persistentVolumeClaim", "claimName")
		p.needs = append(p.needs, need{claims, name})
	}
	s.pods[p.key()] = p
	s.dirty = true
	return p
}

func (p *pod) key() string { return p.namespace + "/" + p.name }

// running reports whether the pod runs.
func (p *pod) running() bool { return p.state != pending }

func (p *pod) String() string {
	return fmt.Sprintf("pod %s of %s on %s", p.name, p.root, p.site.name)
}

// place starts pending pods that have room and what they need.
func (w *world) place(s *site) {
	room := s.nodes*cpusPerNode - len(s.podsWhere((*pod).running))
	for _, p := range s.podsWhere(func(p *pod) bool { return p.state == pending }) {
		missing := slices.ContainsFunc(p.needs, func(n need) bool { return s.get(n.path, p.namespace, n.name) == nil })
		if s.get(namespaces, "", p.namespace) == nil {
			continue
		}
		if s.server.Get("", podObjects, p.namespace, p.name) == nil {
			s.server.Merge("", podObjects, p.namespace, p.name, object(`{apiVersion: v1, kind: Pod, spec: {containers: [{name: c, resources: {requests: {cpu: "1"}}}]}}`))
		}
		if room <= 0 || missing {
			continue
		}
		room--
		p.state, p.due = starting, time.Now().Add(startTime)
		s.server.Patch("", podObjects, p.namespace, p.name, object(`{spec: {nodeName: %s}}`, sortedKeys(s.objects[nodes])[0][1:]))
		w.podStarts(p)
	}
}

// advance does what a pod is due to do.
func (w *world) advance(p *pod) {
	p.due = time.Time{}
	switch p.state {
	case starting:
		p.state = ready_
	case ending:
		w.removePod(p)
	}
}

func (w *world) removePod(p *pod) {
	delete(p.site.pods, p.key())
	p.site.server.Delete("", podObjects, p.namespace, p.name)
}

// stopPod stops a pod because its workload wants that.
func (w *world) stopPod(p *pod, why string) {
	switch p.state {
	case ending:
		return
	case ready_:
		w.podStops(p, why)
	case pending:
		w.removePod(p)
		return
	}
	p.state, p.due = ending, time.Now().Add(endTime)
}

// losePods removes pods that were lost with their nodes: all, or so many.
func (w *world) losePods(s *site, n int) {
	for _, k := range sortedKeys(s.pods) {
		if p := s.pods[k]; p.running() && n > 0 {
			n--
			if p.state == ready_ {
				w.lost = append(w.lost, loss{p.root, s, time.Now()})
			}
			w.removePod(p)
		}
	}
	s.dirty = true
}
