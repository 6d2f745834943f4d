package workloads_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/server/controller"
)

// published are the APIs of the setup.
var published = []schema.GroupResource{
	{Group: "apps", Resource: "deployments"}, {Group: "apps", Resource: "statefulsets"}, {Resource: "services"},
	{Resource: "persistentvolumeclaims"}, {Group: "networking.k8s.io", Resource: "networkpolicies"},
}

// makeCompute makes the compute workspace.
func (w *world) makeCompute() {
	w.computes++
	w.compute = fmt.Sprint("compute", w.computes)
	w.kcp.Alias(computePath, w.compute)
	// Without it there would be no Clusters: a backup has both or none.
	crd, err := api.CRD()
	if err != nil {
		panic(err) // it is embedded
	}
	w.kcp.Merge(w.compute, "apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", crd.GetName(), crd.Object)
}

// setup returns the ID of the setup in clusters.
func (w *world) setup() string { return cmp.Or(w.recorded, w.compute) }

// bind makes a workspace that uses the APIs.
func (w *world) bind(name string) {
	w.kcp.Merge(name, bindings, "", "kubernetes", object(`
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
spec: {reference: {export: {path: %q, name: kubernetes}}}`, computePath))
	for _, ns := range namespaceNames {
		w.kcp.Merge(name, namespaces, "", ns, object(`{apiVersion: v1, kind: Namespace}`))
	}
}

// register adds a Cluster.
func (w *world) register(name string, s *site, mode, level string) {
	w.stopSyncer(name)
	w.mu.Lock()
	w.registered[name] = s
	compute := w.compute
	w.mu.Unlock()
	w.kcp.Merge(compute, secrets, "default", name, object(`{apiVersion: v1, kind: Secret, data: {kubeconfig: %s}}`, base64.StdEncoding.EncodeToString([]byte(s.name))))
	w.kcp.Merge(compute, clusters, "", name, object(`
apiVersion: workloads.kcp.dev/v1alpha1
kind: Cluster
spec: {syncMode: %s, podSecurity: %s, kubeconfigSecretRef: {namespace: default, name: %s}}`, mode, level, name))
	if mode != "Push" {
		w.runSyncer(name, s)
	}
}

// start starts the controller.
func (w *world) start() {
	p := w.newProcess("controller")
	w.mu.Lock()
	w.controller = p
	w.mu.Unlock()
	go func() {
		defer close(p.done)
		for p.ctx.Err() == nil {
			if !w.answers() { // a process that ends is started again later
				w.ended(p, errRefused)
				continue
			}
			err := controller.Run(p.ctx, controller.Options{
				KCP: w.connect(p, nil, true), Workspace: computePath, WorkspaceType: "workload", Setup: w.recorded, APIs: published, Version: "v1", Holder: p.name, Now: time.Now,
				Connect: func(kubeconfig []byte) (*rest.Config, error) {
					s := w.site(string(kubeconfig))
					if s == nil {
						return nil, fmt.Errorf("no site")
					}
					return w.connect(p, s, false), nil
				},
			})
			w.ended(p, err)
		}
	}()
}

// answers reports whether kcp answers.
func (w *world) answers() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.down
}

// ended waits before a process that has ended starts again.
func (w *world) ended(p *process, err error) {
	if p.ctx.Err() == nil {
		w.logf("    %s has ended: %v", p.name, err)
		select {
		case <-p.ctx.Done():
		case <-time.After(10 * time.Second):
		}
	}
}

// kill ends a process. A crash ends its requests first.
func (w *world) kill(p *process, crash bool) {
	if p == nil {
		return
	}
	if crash {
		w.mu.Lock()
		p.dead = true
		w.mu.Unlock()
		w.breakBroken()
	}
	p.cancel()
	<-p.done
	w.mu.Lock()
	defer w.mu.Unlock()
	p.dead = true
	keep := w.links[:0]
	for _, l := range w.links {
		if l.process != p {
			keep = append(keep, l)
		}
	}
	w.links = keep
}

func (w *world) killController(crash bool) {
	w.kill(w.controller, crash)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.controller = nil
}

// runSyncer runs the syncer of a cluster beside it.
func (w *world) runSyncer(name string, s *site) {
	w.stopSyncer(name)
	p := w.newProcess("syncer-" + name)
	w.mu.Lock()
	w.syncers[name] = p
	w.mu.Unlock()
	go func() {
		defer close(p.done)
		for p.ctx.Err() == nil {
			err := controller.RunSyncer(p.ctx, controller.Member{
				KCP: w.connect(p, s, true), Physical: w.connect(p, s, false), Workspace: computePath, Cluster: name, Version: "v1", Holder: p.name, Now: time.Now,
			})
			w.ended(p, err)
		}
	}()
}

func (w *world) stopSyncer(name string) {
	w.mu.Lock()
	p := w.syncers[name]
	delete(w.syncers, name)
	w.mu.Unlock()
	w.kill(p, false)
}

// stopSyncers stops those whose Cluster is gone, as a user does.
func (w *world) stopSyncers() {
	w.mu.Lock()
	var gone []string
	for _, name := range sortedKeys(w.syncers) {
		if w.registered[name] == nil {
			gone = append(gone, name)
		}
	}
	w.mu.Unlock()
	for _, name := range gone {
		w.stopSyncer(name)
	}
}

func (w *world) newProcess(name string) *process {
	w.mu.Lock()
	w.processes++
	p := &process{name: fmt.Sprint(name, "-", w.processes), done: make(chan struct{})}
	w.mu.Unlock()
	log := klog.Background()
	if *told {
		log = funcr.New(func(_, args string) {
			if !strings.Contains(args, "context canceled") {
				w.logf("    %s: %s", p.name, args)
			}
		}, funcr.Options{})
	}
	p.ctx, p.cancel = context.WithCancel(klog.NewContext(pprof.WithLabels(context.Background(), pprof.Labels()), log))
	return p
}

// react does what kcp's own controllers do about an object of kcp. The world is locked.
func (w *world) react(e event) {
	name, cluster := e.Object.GetName(), e.Cluster
	switch {
	case e.Path == exports && e.Type == "ADDED":
		w.kcp.Merge(cluster, slicesPath, "", name, object(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
status: {endpoints: [{url: "%s/services/apiexport/%s/%s"}]}`, w.kcp.URL, cluster, name))
		time.AfterFunc(300*time.Millisecond, func() {
			w.kcp.Patch(cluster, exports, "", name, object(`{status: {identityHash: %s}}`, e.Object.GetUID()))
		})
	case e.Path == exports && e.Type == "DELETED":
		w.kcp.Delete(cluster, slicesPath, "", name)
	case e.Path == bindings && e.Type == "DELETED":
		w.kcp.ReadBindings()
	case e.Path == bindings && e.Type != "DELETED":
		claims, _, _ := unstructured.NestedSlice(e.Object.Object, "spec", "permissionClaims")
		applied, _, _ := unstructured.NestedSlice(e.Object.Object, "status", "appliedPermissionClaims")
		if api.ClaimsApplied(e.Object) && encoded(claims) == encoded(applied) {
			return
		}
		time.AfterFunc(time.Second, func() {
			w.kcp.Patch(cluster, bindings, "", name, object(
				`{status: {conditions: [{type: PermissionClaimsApplied, status: "True"}], appliedPermissionClaims: %s}}`, encoded(claims)))
			w.kcp.ReadBindings()
		})
	}
}
