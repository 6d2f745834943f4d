package workloads_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
)

var (
	siteNames    = []string{"east", "west", "north", "south"}
	clusterNames = []string{"c1", "c2", "c3", "c4", "c5"}
)

// site is a physical cluster. The lock of the world guards its fields.
type site struct {
	name   string
	server *fakeapi.Server
	// cut is how the network between the site and kcp fails: refused or silent. Empty: it works.
	cut string
	// down means that the API server does not answer, dead that nothing runs, refused that the credentials of the
	// controller are not accepted, and narrow that the schema of Deployments does not have a field.
	down, dead, refused, narrow bool
	// healthy is since when the site is reached by what syncs to it.
	healthy time.Time
	// forgotten is when kcp lost what it had scheduled to the site: its Cluster was removed by force, or a backup was
	// restored.
	forgotten time.Time
	// givenUp is when its Cluster was removed by force: what ran there has no leaf until a Cluster with another name
	// takes it over.
	givenUp time.Time
	// objects are those of the API server as its controllers see them, by path and namespace/name.
	objects map[string]map[string]*unstructured.Unstructured
	pods    map[string]*pod
	// administrators has objects that an administrator has made, by path and namespace/name.
	administrators map[string]string
	nodes          int
	numbered       int
	dirty          bool
}

// cpusPerNode is how many pods run on a node.
const cpusPerNode = 12

const openAPI = `
components:
  schemas:
    Deployment:
      type: object
      x-kubernetes-group-version-kind: [{group: apps, version: v1, kind: Deployment}]
      properties: {metadata: {type: object}, spec: {type: object, properties: {replicas: {type: integer}%s}}, status: {type: object, properties: {replicas: {type: integer}}}}
    StatefulSet:
      type: object
      x-kubernetes-group-version-kind: [{group: apps, version: v1, kind: StatefulSet}]
      properties: {metadata: {type: object}, spec: {type: object, properties: {replicas: {type: integer}}}, status: {type: object, properties: {replicas: {type: integer}}}}`

const openCore = `
components:
  schemas:
    Service:
      type: object
      x-kubernetes-group-version-kind: [{group: "", version: v1, kind: Service}]
      properties: {metadata: {type: object}, spec: {type: object, properties: {type: {type: string}}}}
    PersistentVolumeClaim:
      type: object
      x-kubernetes-group-version-kind: [{group: "", version: v1, kind: PersistentVolumeClaim}]
      properties: {metadata: {type: object}, spec: {type: object, properties: {volumeName: {type: string}}}}`

const openNetworking = `
components:
  schemas:
    NetworkPolicy:
      type: object
      x-kubernetes-group-version-kind: [{group: networking.k8s.io, version: v1, kind: NetworkPolicy}]
      properties: {metadata: {type: object}, spec: {type: object, properties: {podSelector: {type: object}}}}`

func (w *world) addSite(name string) {
	s := &site{
		name: name, server: fakeapi.NewMemory(name, deployments, statefulSets), objects: map[string]map[string]*unstructured.Unstructured{},
		pods: map[string]*pod{}, administrators: map[string]string{}, healthy: time.Now(),
	}
	s.server.Serve("/version", "gitVersion: v1.36.3")
	s.server.Serve("/apis", `groups:
- {name: apps, versions: [{version: v1}], preferredVersion: {version: v1}}
- {name: networking.k8s.io, versions: [{version: v1}], preferredVersion: {version: v1}}`)
	resource := func(name, kind string) string {
		return fmt.Sprintf("{name: %s, kind: %s, namespaced: true}, {name: %s/status, kind: %s}", name, kind, name, kind)
	}
	s.server.Serve("/api/v1", "resources: ["+resource("services", "Service")+", "+resource("persistentvolumeclaims", "PersistentVolumeClaim")+"]")
	s.server.Serve("/apis/apps/v1", "resources: ["+resource("deployments", "Deployment")+", "+resource("statefulsets", "StatefulSet")+"]")
	s.server.Serve("/apis/networking.k8s.io/v1", "resources: [{name: networkpolicies, kind: NetworkPolicy, namespaced: true}]")
	s.server.Serve("/api/v1/namespaces/kube-system", fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, uid: %q}}`, "uid-of-"+name))
	s.server.Serve("/openapi?hash=core", openCore)
	s.server.Serve("/openapi?hash=networking", openNetworking)
	s.server.Serve("/openapi?hash=wide", fmt.Sprintf(openAPI, ", paused: {type: boolean}"))
	s.server.Serve("/openapi?hash=narrow", fmt.Sprintf(openAPI, ""))
	s.serveSchema()
	s.server.Tell(func(e fakeapi.Event) { w.queue.add(event{s, e, time.Now()}) })
	w.mu.Lock()
	w.sites = append(w.sites, s)
	w.mu.Unlock()
	s.addNode()
	s.addNode()
}

// serveSchema serves the schemas of the site.
func (s *site) serveSchema() {
	apps := "wide"
	if s.narrow {
		apps = "narrow"
	}
	s.server.Serve("/openapi/v3", fmt.Sprintf(`paths: {api/v1: {serverRelativeURL: "/openapi?hash=core"}, apis/apps/v1: {serverRelativeURL: "/openapi?hash=%s"}, apis/networking.k8s.io/v1: {serverRelativeURL: "/openapi?hash=networking"}}`, apps))
}

func (s *site) addNode() {
	s.numbered++
	s.server.Merge("", nodes, "", fmt.Sprint("node", s.numbered), object(`
apiVersion: v1
kind: Node
status: {allocatable: {cpu: "%d", pods: "110", memory: 64Gi}, conditions: [{type: Ready, status: "True"}]}`, cpusPerNode))
}

// refuse makes the API server refuse the credentials of the controller, or not.
func (s *site) refuse(yes bool) {
	s.refused = yes
	if !yes {
		s.server.Refuse(nil)
		return
	}
	s.server.Refuse(func(*http.Request) (int, string) { return http.StatusUnauthorized, "Unauthorized" })
}

func (w *world) site(name string) *site {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sites {
		if s.name == name {
			return s
		}
	}
	return nil
}

// get returns an object as the controllers of the site see it, or nil.
func (s *site) get(path, namespace, name string) *unstructured.Unstructured {
	return s.objects[path][namespace+"/"+name]
}

// simulate simulates pods, and checks rules, until the world ends.
func (w *world) simulate() {
	defer close(w.stopped)
	for {
		w.mu.Lock()
		for _, e := range w.queue.take() {
			w.see(e)
		}
		next := w.tick()
		w.mu.Unlock()
		select {
		case <-w.stop:
			return
		case <-w.queue.wake:
		case <-time.After(next):
		}
	}
}

// see takes note of a change. The world is locked.
func (w *world) see(e event) {
	if e.site == nil {
		w.seeKCP(e)
		w.react(e)
		return
	}
	s, k := e.site, e.Object.GetNamespace()+"/"+e.Object.GetName()
	if s.objects[e.Path] == nil {
		s.objects[e.Path] = map[string]*unstructured.Unstructured{}
	}
	before := s.objects[e.Path][k]
	if e.Type == "DELETED" {
		delete(s.objects[e.Path], k)
	} else {
		s.objects[e.Path][k] = e.Object
	}
	s.dirty = s.dirty || e.Path != podObjects && e.Path != leases
	w.seeSite(s, e, before)
}

// tick advances the pods of all sites. It returns when to do so again. The world is locked.
func (w *world) tick() time.Duration {
	next, now := time.Minute, time.Now()
	for _, s := range w.sites {
		for _, k := range sortedKeys(s.pods) {
			if p := s.pods[k]; !p.due.IsZero() && !p.due.After(now) {
				w.advance(p)
				s.dirty = true
			}
		}
		if s.dirty && !s.down && !s.dead {
			s.dirty = false
			w.reconcile(s)
		}
		for _, p := range s.pods {
			if !p.due.IsZero() {
				next = min(next, max(0, p.due.Sub(now)))
			}
		}
	}
	w.lasting(now)
	return next
}

// reconcile does what the controllers of a cluster do. The world is locked.
func (w *world) reconcile(s *site) {
	owners := map[string]bool{}
	for _, path := range []string{deployments, statefulSets} {
		for _, k := range sortedKeys(s.objects[path]) {
			o := s.objects[path][k]
			owners[string(o.GetUID())] = true
			w.steer(s, path, o)
		}
	}
	for _, k := range sortedKeys(s.pods) {
		if p := s.pods[k]; !owners[p.owner] {
			w.stopPod(p, "its owner is gone")
		}
	}
	s.nodes = len(s.objects[nodes])
	w.place(s)
	for _, path := range []string{deployments, statefulSets} {
		for _, k := range sortedKeys(s.objects[path]) {
			s.writeStatus(path, s.objects[path][k])
		}
	}
}

// writeStatus writes the status of a workload, if it changes.
func (s *site) writeStatus(path string, o *unstructured.Unstructured) {
	total, ready, updated, revision := 0, 0, 0, revisionOf(o)
	for _, p := range s.podsOf(o) {
		if total++; p.state == ready_ {
			ready++
		}
		if p.revision == revision {
			updated++
		}
	}
	ends := len(s.podsWhere(func(p *pod) bool { return p.owner == string(o.GetUID()) && p.state == ending }))
	status := fmt.Sprintf(`{"availableReplicas":%d,"observedGeneration":%d,"readyReplicas":%d,"replicas":%d,"terminatingReplicas":%d,"updatedReplicas":%d}`,
		ready, o.GetGeneration(), ready, total, ends, updated)
	if is, _, _ := unstructured.NestedMap(o.Object, "status"); encoded(is) == status || o.GetDeletionTimestamp() != nil {
		return
	}
	s.server.Patch("", path, o.GetNamespace(), o.GetName(), map[string]any{"status": object("%s", status)})
}

// ownerOf returns the user's object that an object of a cluster stands for, as workspace|path|namespace/name, or
// nothing.
func ownerOf(path string, o *unstructured.Unstructured) string {
	ws, rest, ok := strings.Cut(o.GetLabels()["owner"], ".")
	ns, name, ok2 := strings.Cut(rest, ".")
	if !ok || !ok2 {
		return ""
	}
	return id(ws, path, ns, name)
}

func id(workspace, path, namespace, name string) string {
	return workspace + "|" + path + "|" + namespace + "/" + name
}

// deleting reports whether an object is on its way out.
func deleting(o metav1.Object) bool { return o.GetDeletionTimestamp() != nil }
