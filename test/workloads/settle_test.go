package workloads_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// patience is how long everything may take until it is as it should be.
const patience = 25 * time.Minute

// settle repairs everything, and waits until each object is where it should be.
func (w *world) settle(g *game) {
	w.logf("everything heals")
	w.mu.Lock()
	for _, s := range w.sites {
		w.revive(s)
		s.narrow = false
		s.serveSchema()
	}
	w.down = false
	running := w.controller != nil
	w.mu.Unlock()
	if !running {
		w.start()
	}
	problem := ""
	for began := time.Now(); time.Since(began) < patience; {
		g.pass(10 * time.Second)
		if len(w.violations()) > 0 {
			return
		}
		skipped := false
		if problem, skipped = w.unsettled(); problem == "" {
			w.calm(skipped)
			if g.chance("at rest", 4) {
				w.rest(g)
			}
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violate("sum", "%s after everything has been well: %s", patience, problem)
	for _, k := range w.rootsLocked(deployments, statefulSets) {
		if o := w.objects[k]; strings.Contains(problem, k) {
			w.logf("    %s: %s %s", k, encoded(o.GetAnnotations()), encoded(o.Object["status"]))
		}
	}
}

// calm forgets what has happened, unless it is not known whether it has ended.
func (w *world) calm(skipped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if skipped {
		return
	}
	w.disturbed = ""
	clear(w.touched)
	clear(w.fewer)
	clear(w.excused)
	w.logf("    all is well: %d pods", len(w.allPods()))
}

func (w *world) allPods() (out []*pod) {
	for _, s := range w.sites {
		out = append(out, s.podsWhere((*pod).running)...)
	}
	return out
}

// rest checks that nearly nothing is written if nothing happens.
func (w *world) rest(g *game) {
	g.pass(2 * time.Minute)
	w.mu.Lock()
	w.writes, w.resting = map[string]int{}, true
	w.mu.Unlock()
	g.pass(3 * time.Minute)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resting = false
	n := 0
	for _, k := range sortedKeys(w.writes) {
		n += w.writes[k]
	}
	if n > 12 && !w.waiting() {
		w.violate("rest", "%d writes in three minutes: %s", n, encoded(w.writes))
	}
}

// waiting reports whether a pod has no room: it moves when there is some elsewhere.
func (w *world) waiting() bool {
	return slices.ContainsFunc(w.sites, func(s *site) bool {
		return len(s.podsWhere(func(p *pod) bool { return p.state == pending })) > 0
	})
}

// ready returns the number of ready Clusters.
func (w *world) ready() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range sortedKeys(w.registered) {
		if status, _ := conditionOf(w.objects[id(w.compute, clusters, "", name)], api.ConditionReady); status == "True" {
			n++
		}
	}
	return n
}

// refusals are the reasons for which a cluster is not used until a user has looked.
var refusals = map[string]bool{
	api.ReasonDuplicateCluster: true, api.ReasonClusterReplaced: true, api.ReasonOtherSetup: true,
}

// unsettled returns what is not as it should be. skipped means that something could not be checked.
func (w *world) unsettled() (problem string, skipped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	usable := map[*site]bool{}
	for _, name := range sortedKeys(w.registered) {
		o := w.objects[id(w.compute, clusters, "", name)]
		if o == nil || deleting(o) {
			skipped = true
			continue
		}
		status, reason := conditionOf(o, api.ConditionReady)
		if status != "True" && refusals[reason] {
			skipped = true
			continue
		}
		if status != "True" {
			return fmt.Sprintf("Cluster %s is not ready: %s", name, reason), skipped
		}
		if level := text(o, "spec", "podSecurity"); level != "" && !w.levelIs(w.registered[name], level) {
			return fmt.Sprintf("a namespace on Cluster %s does not have the level %s", name, level), skipped
		}
		if cordoned, _, _ := unstructured.NestedBool(o.Object, "spec", "unschedulable"); !cordoned {
			usable[w.registered[name]] = true
		}
	}
	for _, k := range w.rootsLocked(deployments, statefulSets) {
		p, skip := w.unplaced(k, usable)
		if p != "" {
			return p, skipped
		}
		skipped = skipped || skip
	}
	for _, p := range w.allPods() {
		if w.objects[p.root] == nil && w.deleted[p.root] != (time.Time{}) && w.used(p.site) && !skipped && !w.left(p) {
			return fmt.Sprintf("%s runs, and its user has deleted it", p), skipped
		}
	}
	if skipped {
		return "", true // a cluster is refused, and nothing is written to it
	}
	return w.unprotected(), false
}

// levelIs reports whether the namespaces of users on a site have a Pod Security level.
func (w *world) levelIs(s *site, level string) bool {
	for _, o := range s.objects[namespaces] {
		if o.GetLabels()[api.LabelSetup] == w.setup() && o.GetLabels()[api.LabelPodSecurity] != level && !deleting(o) {
			return false
		}
	}
	return true
}

// unplaced returns what is wrong with the pods of a workload.
func (w *world) unplaced(k string, usable map[*site]bool) (problem string, skipped bool) {
	root := w.objects[k]
	if spread := root.GetAnnotations()[api.AnnotationSpread]; spread == "Single" || text(root, "spec", "strategy", "type") == "Recreate" {
		for _, s := range w.sites {
			lost := !w.used(s) && len(s.podsWhere(func(p *pod) bool { return p.root == k })) > 0
			if lost || w.refuses(s) && w.placed(root, s) {
				return "", true // it would run twice elsewhere
			}
		}
	}
	for _, name := range sortedKeys(w.registered) {
		if p := w.collides(k, name); p != "" {
			return p, false
		}
	}
	wanted, rev := number(root, "spec", "replicas"), text(root, "spec", "template", "metadata", "labels", "rev")
	held := 0 // on refused clusters, which do not roll out
	available, running, sites, data := 0, 0, map[*site]int{}, len(needsOf(root)) > 0 && needsOf(root)[0].path == claims || w.isSet(k)
	for _, s := range w.sites {
		if !w.used(s) {
			continue
		}
		for _, p := range s.podsWhere(func(p *pod) bool { return p.root == k }) {
			if p.state == pending && s.nodes*cpusPerNode <= len(s.podsWhere((*pod).running)) {
				return "", true // no room
			}
			if w.orphaned(p) {
				return "", true // it stays until a user releases it
			}
			if running++; p.state == ready_ && p.rev == rev {
				available++
				sites[s]++
			} else if p.state == ready_ && w.refuses(s) {
				held++
			}
			if !usable[s] && !data {
				skipped = true
			}
		}
	}
	if len(usable) == 0 {
		return "", true
	}
	spread := root.GetAnnotations()[api.AnnotationSpread]
	if spread == "Duplicate" && !data { // data is in one cluster
		for s := range usable {
			if sites[s] != wanted {
				return fmt.Sprintf("%s has %d of %d pods on %s", k, sites[s], wanted, s.name), skipped
			}
		}
		return "", skipped
	}
	if _, reason := conditionOf(root, api.ConditionScheduled); reason == api.ReasonClusterGone && w.placedNowhere(root) {
		return "", true // its data can be there, and a user decides
	}
	if data && available != wanted {
		for _, s := range w.sites {
			if s.objects != nil && w.used(s) && !usable[s] || !w.used(s) && len(s.objects[claims]) > 0 {
				return "", true // its data can be there
			}
		}
	}
	if skipped && available+held >= wanted {
		return "", true // a refused cluster keeps what it runs, beside its replacements, until a user has looked
	}
	if full(usable) && slices.ContainsFunc(w.sites, w.refuses) {
		return "", true // what a refused cluster cannot run waits for room
	}
	if available != wanted || running != wanted {
		return fmt.Sprintf("%s has %d available pods of %d, and %d in all", k, available, wanted, running), skipped
	}
	if spread == "Single" && len(sites) > 1 {
		return fmt.Sprintf("%s runs on %d clusters", k, len(sites)), skipped
	}
	status, reason := conditionOf(root, api.ConditionSynced)
	if refusals[reason] || reason == api.ReasonUnprotected && refusedMessage(root) {
		return "", true // what runs there is not reported either
	}
	if n := number(root, "status", "readyReplicas"); n != wanted {
		return fmt.Sprintf("%s reports %d of %d ready replicas", k, n, wanted), skipped
	}
	if status != "True" && wanted > 0 {
		return fmt.Sprintf("%s is not synced: %s", k, reason), skipped
	}
	return "", skipped
}

// refusedMessage reports whether pods wait for a guard that a cluster refuses until a user has looked.
func refusedMessage(root *unstructured.Unstructured) bool {
	c := api.ConditionIn(root, api.ConditionSynced)
	return slices.ContainsFunc(sortedKeys(refusals), func(reason string) bool { return strings.Contains(c.Message, ": "+reason+": ") })
}

// full reports whether no site has room for another pod.
func full(sites map[*site]bool) bool {
	for s := range sites {
		if len(s.podsWhere((*pod).running)) < s.nodes*cpusPerNode {
			return false
		}
	}
	return true
}

// placed reports whether a workload has a share of a Cluster of a site.
func (w *world) placed(root *unstructured.Unstructured, s *site) bool {
	for _, name := range sortedKeys(w.registered) {
		if w.registered[name] == s && strings.Contains(root.GetAnnotations()[api.AnnotationPlacement], fmt.Sprintf("%q:", name)) {
			return true
		}
	}
	return false
}

// collides returns why a leaf is refused, if that is an object that was made of the same root.
func (w *world) collides(k, cluster string) string {
	leaf := w.objects[api.LeafName(k, cluster)]
	if leaf == nil {
		return ""
	}
	workspace, rest, _ := strings.Cut(k, "|")
	_, object, _ := strings.Cut(rest, "|")
	c := api.ConditionIn(leaf, api.ConditionSynced)
	if c == nil || c.Reason != api.ReasonNameCollision || !strings.Contains(c.Message, "stands for "+workspace+"|"+object+"--") {
		return ""
	}
	return fmt.Sprintf("%s on Cluster %s is refused: %s", k, cluster, c.Message)
}

// placedNowhere reports whether a root is placed on a Cluster that does not exist.
func (w *world) placedNowhere(root *unstructured.Unstructured) bool {
	var all api.Placement
	if json.Unmarshal([]byte(root.GetAnnotations()[api.AnnotationPlacement]), &all) != nil {
		return false
	}
	for name := range all {
		if w.objects[id(w.compute, clusters, "", name)] == nil {
			return true
		}
	}
	return false
}

// orphaned reports whether the workload of a pod has no leaf.
func (w *world) orphaned(p *pod) bool {
	o := p.site.get(p.path, p.namespace, p.workload)
	if o == nil {
		return false
	}
	leaf := w.objects[leafOf(p.path, o)]
	return leaf == nil || w.registered[leaf.GetLabels()[api.LabelCluster]] != p.site
}

// left reports whether the workload of a pod was left in its cluster without a leaf by a command, or by a restored
// backup. The pod can be newer: it replaces one that was lost.
func (w *world) left(p *pod) bool {
	o := p.site.get(p.path, p.namespace, p.workload)
	return o != nil && o.GetCreationTimestamp().Time.Before(p.site.forgotten) && w.orphaned(p)
}

// leafOf returns the id of the leaf that an object of a cluster was made of.
func leafOf(path string, o *unstructured.Unstructured) string {
	ws, rest, _ := strings.Cut(o.GetAnnotations()[api.Group+"/leaf"], "|")
	return ws + "|" + path + "|" + rest
}

func (w *world) isSet(k string) bool {
	_, path, _, _ := split(k)
	return path == statefulSets
}

// unprotected returns a pod without what protects it.
func (w *world) unprotected() string {
	for _, k := range w.rootsLocked(policies, services) {
		_, path, _, name := split(k)
		app := text(w.objects[k], "spec", "selector", "app")
		for _, p := range w.allPods() {
			if root := w.objects[p.root]; root == nil || !sameNamespace(p.root, k) || path == services && p.app != app || !w.used(p.site) || w.orphaned(p) {
				continue
			}
			if p.site.get(path, p.namespace, name) == nil {
				return fmt.Sprintf("%s runs without %s", p, k)
			}
		}
	}
	return ""
}
