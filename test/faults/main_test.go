// Package faults makes every single request of kcpctl to an API server fail, in every way in which requests fail. It
// proves that a rerun of the command always ends with the same objects and the same authorities, and leaves nothing
// behind.
//
// kcpctl is the real program, and the API server a real one with its etcd. Package standin simulates controllers, nodes
// and kcp, so that a case takes seconds. The tests of test/e2e have real ones.
package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/test/apiserver"
	"github.com/kcpctl/kcpctl/test/standin"
)

// shared is the world of all tests of this package. It is a variable because TestMain has no other way to pass it.
var shared *world

func TestMain(m *testing.M) {
	if apiserver.Short() { // there is no test without a server
		fmt.Fprintln(os.Stderr, "test/faults "+apiserver.Skipped)
		return
	}
	debug.SetGCPercent(400) // trade memory for time
	os.Exit(apiserver.With(m, func(ctx context.Context, server *apiserver.Server) (err error) {
		if shared, err = newWorld(ctx, server); err == nil {
			context.AfterFunc(ctx, shared.proxy.Stop)
		}
		return err
	}))
}

// world is shared by all cases.
type world struct {
	// binary is the path of kcpctl.
	binary string
	*standin.Cluster
	// resources are all kinds of namespaced objects, except pods and events.
	resources []schema.GroupVersionResource
	proxy     *standin.Proxy
	keys      *keyring

	made   atomic.Int32 // the number of places
	mu     sync.Mutex
	places map[string]*place // by namespace
}

func newWorld(ctx context.Context, server *apiserver.Server) (*world, error) {
	w := &world{binary: filepath.Join(server.Dir, "kcpctl"), places: map[string]*place{}}
	build := exec.CommandContext(ctx, "go", "build", "-o", w.binary, "github.com/kcpctl/kcpctl")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build kcpctl: %w\n%s", err, out)
	}
	var err error
	if w.Cluster, err = standin.Start(ctx, server); err != nil {
		return nil, err
	}
	if w.resources, err = namespaced(w.Config); err != nil {
		return nil, err
	}
	w.keys = &keyring{admin: w.Admin, place: w.at}
	if err := w.keys.run(ctx); err != nil {
		return nil, err
	}
	w.proxy, err = w.Proxy(w.serve)
	return w, err
}

// namespaced discovers all kinds of namespaced objects.
func namespaced(config *rest.Config) ([]schema.GroupVersionResource, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := client.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, err
	}
	var out []schema.GroupVersionResource
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range l.APIResources {
			if slices.Contains(r.Verbs, "list") && r.Name != standin.Pods.Resource && r.Name != "events" {
				out = append(out, gv.WithResource(r.Name))
			}
		}
	}
	return out, nil
}

// at returns the place of a namespace, or nil.
func (w *world) at(namespace string) *place {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.places[namespace]
}

func (w *world) add(p *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.places[p.Namespace] = p
}

// remove forgets a place. The objects in its namespace stay.
func (w *world) remove(p *place) {
	w.Remove(p.Site)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.places, p.Namespace)
}
