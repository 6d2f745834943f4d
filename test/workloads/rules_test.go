package workloads_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// rules are what the project promises, by the name under which a violation is reported.
var rules = []struct{ name, about string }{
	{"stopped", "a pod of a workload that its user did not touch is not stopped unless enough others are available, or a command allows it"},
	{"moved", "nothing is stopped at all where nothing has happened: what runs does not move unasked"},
	{"twice", "a workload of which one may run at a time never runs twice"},
	{"needed", "what the pods in a cluster need, of any revision, is not removed from it"},
	{"protected", "a NetworkPolicy is in a cluster before the first pod, and as long as there are pods"},
	{"data", "volumes do not disappear unless their user deletes them"},
	{"isolation", "nothing of one workspace is in the namespace of another"},
	{"administrator", "objects of administrators stay as they are"},
	{"ready", "a cluster is only ready with a heartbeat"},
	{"deleted", "what its user has deleted ends within ten minutes where it can be reached"},
	{"drained", "a cluster is only removed when nothing of users runs there, unless a command gives it up"},
	{"loop", "no object is written more than 120 times in a minute, and no client sends more than 6000 requests"},
	{"sum", "if everything is well, each object is where it should be, as often as it should be, and synced"},
	{"rest", "if nothing happens, nearly nothing is written"},
}

func ruleNames() (out []string) {
	for _, r := range rules {
		out = append(out, r.name)
	}
	return out
}

// model is what the rules know.
type model struct {
	// registered are the sites of the Clusters that there are.
	registered map[string]*site
	links      []*link
	requests   int
	// objects are those of kcp, by id.
	objects map[string]*unstructured.Unstructured
	// deleted and vanished are when objects of users were deleted, and when they went missing with a backup.
	deleted, vanished map[string]time.Time
	// touched and excused are what users have done to workloads that has not ended yet: excused may stop all pods.
	// disturbed is what has happened elsewhere.
	touched, excused map[string]string
	disturbed        string
	// fewer are the replicas that users have asked for before they asked for more, which clusters may see later.
	fewer      map[string]asked
	heartbeats map[string]time.Time
	// outage is the last time in which kcp did not answer.
	outage struct{ from, to time.Time }
	// restored is when the last backup was restored.
	restored time.Time
	lost     []loss
	problems []string
	// window is the minute in which requests are counted.
	window time.Time
	counts map[string]int
	number int
	// shown are the changes of objects of kcp in that minute.
	shown map[string]int
	// writes are those at rest, by what is written.
	resting bool
	writes  map[string]int
	// revisions makes names.
	revisions int
	lines     lines
}

// asked is a number of replicas that a user has asked for until a time.
type asked struct {
	replicas int
	until    time.Time
}

// askedFor is how long a cluster can take to see that a user asks for more again, if nothing has happened to it.
const askedFor = time.Minute

// wanted returns the replicas that the user of a workload asks for: the fewest if a cluster may not have seen the last
// number.
func (w *world) wanted(k string, root *unstructured.Unstructured) int {
	n := number(root, "spec", "replicas")
	if a, ok := w.fewer[k]; ok && (w.disturbed != "" || time.Since(a.until) < askedFor) {
		return min(n, a.replicas)
	}
	return n
}

// loss is a pod that was lost with its node.
type loss struct {
	root string
	site *site
	at   time.Time
}

func newModel() model {
	return model{
		registered: map[string]*site{}, objects: map[string]*unstructured.Unstructured{}, deleted: map[string]time.Time{}, vanished: map[string]time.Time{},
		touched: map[string]string{}, excused: map[string]string{}, heartbeats: map[string]time.Time{}, counts: map[string]int{}, shown: map[string]int{}, writes: map[string]int{},
		fewer: map[string]asked{},
	}
}

// violate records a violation. The world is locked, or has not begun.
func (w *world) violate(rule, format string, args ...any) {
	if w.planted != nil && w.planted.rule != rule || lists(*without, rule) || *only != "" && !lists(*only, rule) || len(w.problems) > 20 {
		return
	}
	p := rule + ": " + fmt.Sprintf(format, args...)
	if !slices.Contains(w.problems, p) {
		w.problems = append(w.problems, p)
		w.logf("    VIOLATION: %s", p)
		w.logf("    pods: %s", w.census())
	}
}

// census returns the number of pods of each workload by site and state.
func (w *world) census() string {
	names, counts := []string{"pending", "starting", "ready", "ending"}, map[string]int{}
	for _, s := range w.sites {
		for _, p := range s.pods {
			counts[fmt.Sprint(p.root, " on ", s.name, " ", names[p.state])]++
		}
	}
	return encoded(counts)
}

func (w *world) violations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.problems)
}

// count counts requests.
func (w *world) count(l *link, r *http.Request) {
	if now := time.Now(); now.Sub(w.window) >= time.Minute {
		w.window, w.number = now, 0
		clear(w.counts)
		clear(w.shown)
	}
	if w.number++; w.number == 6000 {
		w.violate("loop", "6000 requests in a minute, the last one is %s %s of %s", r.Method, r.URL.Path, l.process.name)
	}
	if r.Method != http.MethodGet {
		k := l.Server.URL + " " + r.URL.Path
		if w.resting && !strings.Contains(r.URL.Path, "/leases/") {
			w.writes[r.Method+" "+k]++
		}
		if w.counts[k]++; w.counts[k] == 120 {
			w.violate("loop", "120 writes in a minute: %s %s of %s", r.Method, k, l.process.name)
		}
	}
}

// podStarts checks the rules about a pod that starts.
func (w *world) podStarts(p *pod) {
	root := w.objects[p.root]
	if root == nil {
		return
	}
	owner := p.site.get(p.path, p.namespace, p.workload)
	for _, k := range sortedKeys(w.objects) {
		o := w.objects[k]
		ws, path, ns, name := split(k)
		if path != policies || !isRoot(o) || deleting(o) || !sameNamespace(k, p.root) || w.vanished[k] != (time.Time{}) {
			continue
		}
		early := o.GetCreationTimestamp().Add(10 * time.Second)
		if owner != nil && early.Before(owner.GetCreationTimestamp().Time) && early.Before(root.GetCreationTimestamp().Time) && p.site.get(policies, p.namespace, name) == nil {
			w.violate("protected", "%s starts without NetworkPolicy %s/%s of workspace %s", p, ns, name, ws)
		}
	}
	w.checkTwice(p, root)
}

// checkTwice checks that a workload of which one may run at a time does not run twice.
func (w *world) checkTwice(p *pod, root *unstructured.Unstructured) {
	single := root.GetAnnotations()[api.AnnotationSpread] == "Single"
	recreate := text(root, "spec", "strategy", "type") == "Recreate"
	if !single && !recreate || w.excused[p.root] != "" || w.orphaned(p) ||
		strings.HasPrefix(root.GetAnnotations()[api.AnnotationFailover], "Auto") {
		return
	}
	here, elsewhere := 0, 0
	for _, s := range w.sites {
		if s != p.site && (!w.used(s) || w.givenUp(s)) {
			continue // it was removed by force
		}
		n := len(s.podsWhere(func(o *pod) bool {
			return o.root == p.root && o.running() && o.created.After(root.GetCreationTimestamp().Time) && !o.created.Before(s.givenUp) && !w.orphaned(o)
		}))
		if s == p.site {
			here += n
		} else {
			elsewhere += n
		}
	}
	if single && elsewhere > 0 {
		w.violate("twice", "%s starts, and %d run elsewhere: its spread is Single", p, elsewhere)
	}
	if root.GetAnnotations()[api.AnnotationSpread] == "Duplicate" {
		elsewhere = 0 // as many as are wanted run in each cluster
	}
	if wanted := number(root, "spec", "replicas"); recreate && here+elsewhere > wanted && w.touched[p.root] == "" {
		w.violate("twice", "%s starts, and %d run already: its strategy is Recreate with %d replicas", p, here+elsewhere-1, wanted)
	}
}

// used reports whether a Cluster is the site.
func (w *world) used(s *site) bool {
	for _, other := range w.registered {
		if other == s {
			return true
		}
	}
	return false
}

// refuses reports whether a Cluster of a site is refused: nothing is written to it until a user has looked.
func (w *world) refuses(s *site) bool {
	for _, name := range sortedKeys(w.registered) {
		if o := w.objects[id(w.compute, clusters, "", name)]; w.registered[name] == s && o != nil {
			if status, reason := conditionOf(o, api.ConditionReady); status != "True" && refusals[reason] {
				return true
			}
		}
	}
	return false
}

// givenUp reports whether the Cluster of a site is being removed by force.
func (w *world) givenUp(s *site) bool {
	for _, name := range sortedKeys(w.registered) {
		o := w.objects[id(w.compute, clusters, "", name)]
		if w.registered[name] == s && o != nil && deleting(o) && o.GetAnnotations()[api.AnnotationForceRemoval] != "" {
			return true
		}
	}
	return false
}

// podStops checks the rules about an available pod that its workload stops.
func (w *world) podStops(p *pod, why string) {
	root := w.objects[p.root]
	switch {
	case root == nil && w.deleted[p.root] != (time.Time{}):
		return
	case p.created.Before(p.site.givenUp):
		return
	case root == nil && w.touched[p.root] != "" && why == outdated:
		return // its user's rollout
	case root == nil && w.excused[p.root] == "administrator" && strings.HasPrefix(why, scaled):
		return // its administrator scales an orphan: nothing corrects it
	case root == nil:
		w.violate("stopped", "%s: %s, and no user has deleted it: it has been missing for %s", p, why, time.Since(w.vanished[p.root]))
		return
	case deleting(root), root.GetCreationTimestamp().After(p.created), text(root, "spec", "template", "metadata", "labels", "rev") != p.rev:
		return
	case w.leaving(p.site), w.excused[p.root] != "":
		return
	}
	duplicate := root.GetAnnotations()[api.AnnotationSpread] == "Duplicate"
	available := w.available(p, func(s *site) bool { return !duplicate || s == p.site })
	wanted := w.wanted(p.root, root)
	switch {
	case w.touched[p.root] != "" && w.others(p) >= wanted: // the user wants fewer
	case available < wanted:
		w.violate("stopped", "%s: %s, and %d of %d others are available", p, why, available, wanted)
	case w.disturbed == "" && w.touched[p.root] == "":
		w.violate("moved", "%s: %s, though nothing has happened to it", p, why)
	}
}

// available returns the number of other available pods of a workload. Those that were lost a short while ago count:
// that cannot be known yet.
func (w *world) available(p *pod, where func(*site) bool) (n int) {
	for _, s := range w.sites {
		if where(s) {
			n += len(s.podsWhere(func(o *pod) bool { return o != p && o.root == p.root && o.state == ready_ }))
		}
	}
	for _, l := range w.lost {
		if l.root == p.root && where(l.site) && (time.Since(l.at) < 2*time.Minute || time.Since(l.site.healthy) < 2*time.Minute) {
			n++
		}
	}
	return n
}

// others returns the number of other pods of a workload that run or start.
func (w *world) others(p *pod) (n int) {
	for _, s := range w.sites {
		n += len(s.podsWhere(func(o *pod) bool { return o != p && o.root == p.root && o.state != ending }))
	}
	return n
}

// leaving reports whether a command moves everything away from a site, or it has no Cluster.
func (w *world) leaving(s *site) bool {
	for _, name := range sortedKeys(w.registered) {
		if w.registered[name] != s {
			continue
		}
		o := w.objects[id(w.compute, clusters, "", name)]
		if o == nil || deleting(o) {
			return true
		}
		cordoned, _, _ := unstructured.NestedBool(o.Object, "spec", "unschedulable")
		if _, drain := o.GetAnnotations()[api.AnnotationDrain]; drain && cordoned {
			return true
		}
	}
	return false
}

func isRoot(o *unstructured.Unstructured) bool { return o.GetLabels()[api.LabelCluster] == "" }

// split returns the parts of an id.
func split(k string) (workspace, path, namespace, name string) {
	parts := strings.SplitN(k, "|", 3)
	namespace, name, _ = strings.Cut(parts[2], "/")
	return parts[0], parts[1], namespace, name
}

// sameNamespace reports whether two ids are of the same namespace of the same workspace.
func sameNamespace(a, b string) bool {
	ws, _, ns, _ := split(a)
	ws2, _, ns2, _ := split(b)
	return ws == ws2 && ns == ns2
}
