package workloads_test

import (
	"flag"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/test/random"
)

var planted = flag.String("model.planted", "", "part of the names of the defects that TestPlanted plants, or all. Default: none")

// defect is what a mistake in the controller or in a syncer does at their seams: to the API servers, or to the requests
// that reach them. A rule of the model must find it.
type defect struct {
	name, rule string
	// steps are those that the model takes, separated by commas. Default: all.
	steps string
	// act does the harm, each second. The world is locked.
	act func(w *world)
	// drops selects requests that are lost. The world is locked.
	drops func(w *world, l *link, r *http.Request) bool
}

// The steps of models in which only some things happen.
const (
	// calm are those in which nothing goes wrong.
	calm = "create a Deployment,scale,roll out,create a Service,add a node,restart the controller,time passes,everything heals"
	// joining adds clusters.
	joining = calm + ",add a cluster"
	// narrowed are those of an API that becomes incompatible.
	narrowed = "create a Deployment,delete a workload,narrow a schema,time passes"
	// restored are those of a backup of kcp that is restored, and in which objects of users are missing.
	restored = "create a Deployment,create a StatefulSet,back up kcp,restore kcp,time passes"
	// removed removes clusters.
	removed = "create a Deployment,add a cluster,remove a cluster,stop the API server,time passes"
)

var defects = []defect{
	{
		name: "the leaves of a silent cluster are deleted", rule: "stopped",
		act: func(w *world) {
			for _, name := range sortedKeys(w.registered) {
				if status, _ := conditionOf(w.cluster(name), api.ConditionReady); status == "False" && !w.leaving(w.registered[name]) {
					w.deleteLeaves(name)
				}
			}
		},
	},
	{
		name: "volumes without a leaf are deleted", rule: "data", steps: restored,
		act: func(w *world) { w.deleteOrphans(claims) },
	},
	{
		name: "workloads without a leaf are deleted", rule: "stopped", steps: restored,
		act: func(w *world) { w.deleteOrphans(deployments) },
	},
	{
		name: "a replica moves to where more is free", rule: "moved", steps: calm,
		act: func(w *world) {
			if time.Now().Unix()%600 == 0 {
				w.moveOne(func(*site) bool { return true })
			}
		},
	},
	{
		name: "a cluster that joins gets what runs elsewhere", rule: "moved", steps: joining,
		act: func(w *world) {
			empty := slices.ContainsFunc(w.sites, func(s *site) bool { return w.used(s) && len(s.pods) == 0 })
			if empty {
				w.moveOne(func(s *site) bool { return len(s.pods) > 0 })
			}
		},
	},
	{
		name: "a workload starts on a second cluster before it has ended on the first", rule: "twice", steps: joining,
		act: (*world).startTwice,
	},
	{
		name: "everything runs twice when the compute workspace is made again", rule: "twice",
		steps: "create a Deployment,add a cluster,make the compute workspace again,time passes",
		act: func(w *world) {
			if w.computes > 1 {
				w.startTwice()
			}
		},
	},
	{
		name: "a ConfigMap of running pods goes when a rollout begins", rule: "needed", steps: calm,
		act: func(w *world) {
			for _, s := range w.sites {
				for _, p := range s.podsWhere((*pod).running) {
					root := w.objects[p.root]
					for _, n := range p.needs {
						if root != nil && n.path == configMaps && p.rev != text(root, "spec", "template", "metadata", "labels", "rev") {
							s.server.Delete("", n.path, p.namespace, n.name)
						}
					}
				}
			}
		},
	},
	{
		name: "a NetworkPolicy is on one cluster", rule: "protected",
		act: func(w *world) {
			for _, s := range w.sites[1:] {
				for _, o := range s.objects[policies] {
					s.server.Delete("", policies, o.GetNamespace(), o.GetName())
				}
			}
		},
	},
	{
		name: "silence is taken for a heartbeat", rule: "ready",
		act: func(w *world) {
			for _, name := range sortedKeys(w.registered) {
				if status, _ := conditionOf(w.cluster(name), api.ConditionReady); status == "False" {
					w.kcp.Patch(w.compute, clusters, "", name, object(`{status: {conditions: [{type: Ready, status: "True", reason: Ready}]}}`))
				}
			}
		},
	},
	{
		name: "namespaces keep the level of another name of their cluster", rule: "sum",
		act: func(w *world) {
			for _, s := range w.sites {
				for _, o := range s.objects[namespaces] {
					if level := o.GetLabels()[api.LabelPodSecurity]; level != "" && level != "restricted" {
						s.server.Patch("", namespaces, "", o.GetName(), object(`{metadata: {labels: {%s: restricted}}}`, api.LabelPodSecurity))
					}
				}
			}
		},
	},
	{
		name: "objects of administrators are taken over", rule: "administrator",
		act: func(w *world) {
			for _, s := range w.sites {
				for k := range s.administrators {
					path, rest, _ := strings.Cut(k, " ")
					ns, name, _ := strings.Cut(rest, "/")
					s.server.Patch("", path, ns, name, object(`{data: {policy: v}}`))
				}
			}
		},
	},
	{
		name: "what is deleted waits for a schema", rule: "deleted", steps: narrowed,
		drops: func(w *world, l *link, r *http.Request) bool {
			return r.Method == http.MethodDelete && !l.toKCP && l.site.narrow
		},
	},
	{
		name: "a cluster is removed while workloads run there", rule: "drained", steps: removed,
		act: func(w *world) {
			for _, name := range sortedKeys(w.registered) {
				if o := w.cluster(name); o != nil && deleting(o) {
					w.kcp.Patch(w.compute, clusters, "", name, object(`{metadata: {finalizers: []}}`))
				}
			}
		},
	},
}

func (w *world) cluster(name string) *unstructured.Unstructured {
	return w.objects[id(w.compute, clusters, "", name)]
}

// deleteLeaves deletes what is scheduled to a Cluster.
func (w *world) deleteLeaves(cluster string) {
	for _, k := range sortedKeys(w.objects) {
		if o := w.objects[k]; o.GetLabels()[api.LabelCluster] == cluster && !deleting(o) {
			ws, path, ns, name := split(k)
			w.kcp.Delete(ws, path, ns, name)
		}
	}
}

// deleteOrphans deletes objects of clusters that have no leaf.
func (w *world) deleteOrphans(path string) {
	for _, s := range w.sites {
		for _, k := range sortedKeys(s.objects[path]) {
			o := s.objects[path][k]
			if o.GetAnnotations()[api.Group+"/leaf"] != "" && w.objects[leafOf(path, o)] == nil && !deleting(o) {
				s.server.Delete("", path, o.GetNamespace(), o.GetName())
			}
		}
	}
}

// moveOne replaces a pod of a Deployment on one of some sites that has not changed.
func (w *world) moveOne(where func(*site) bool) {
	for _, s := range w.sites {
		for _, p := range s.podsWhere(func(p *pod) bool { return where(s) && p.state == ready_ && p.path == deployments }) {
			o := s.get(p.path, p.namespace, p.workload)
			if o == nil || deleting(o) || w.touched[p.root] != "" {
				continue
			}
			w.startPod(s, p.path, o, p.revision).state = ready_
			w.stopPod(p, "it moves")
			return
		}
	}
}

// startTwice schedules Deployments of which one may run at a time to a second Cluster.
func (w *world) startTwice() {
	for _, k := range w.rootsLocked(deployments) {
		ws, path, ns, name := split(k)
		for _, first := range sortedKeys(w.registered) {
			leaf := w.objects[api.LeafName(k, first)]
			if leaf == nil || leaf.GetAnnotations()[api.AnnotationSpread] != "Single" && w.objects[k].GetAnnotations()[api.AnnotationSpread] != "Single" {
				continue
			}
			for _, second := range sortedKeys(w.registered) {
				if w.registered[second] == w.registered[first] || w.objects[api.LeafName(k, second)] != nil {
					continue
				}
				labels := leaf.GetLabels()
				labels[api.LabelCluster] = second
				w.kcp.Merge(ws, path, ns, api.LeafName(name, second), object(`{kind: Deployment, apiVersion: apps/v1, metadata: {labels: %s, annotations: %s}, spec: %s}`,
					encoded(labels), encoded(leaf.GetAnnotations()), encoded(leaf.Object["spec"])))
				return
			}
		}
	}
}

// TestPlanted plants each defect, and requires that the model finds it. Without its flag it does nothing: see make planted.
func TestPlanted(t *testing.T) {
	if *planted == "" {
		require.NotEmpty(t, defects)
		return
	}
	quiet(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, d := range defects {
		if *planted != "all" && !strings.Contains(d.name, *planted) {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			require.Contains(t, ruleNames(), d.rule)
			taken := &tally{counts: map[string]int{}}
			checks := &random.Checks{Dir: "test/workloads", Wanted: 1000, Steps: func() int { return taken.steps }}
			checks.Check = func(rt *rapid.T, seed uint64) {
				if taken.found == "" {
					random.Seed(t, seed)
					bubble(t, func() { play(rt, taken, &d) })
				}
				if taken.found != "" {
					checks.Wanted = 0
				}
			}
			checks.Run(t)
			require.NotEmpty(t, taken.found, "the model has found nothing in %d steps", taken.steps)
			t.Logf("step %d: %s", taken.steps, taken.found)
		})
	}
}

// harm does what a defect does, until the world ends.
func (w *world) harm(d *defect) {
	for d.act != nil {
		select {
		case <-w.stop:
			return
		case <-time.After(time.Second):
		}
		w.mu.Lock()
		d.act(w)
		w.mu.Unlock()
	}
}
