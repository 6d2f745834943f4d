//go:build integration

// Package faults makes every single request of kcpctl to an API server fail, in every way in which requests fail. It proves that
// a rerun of the command always ends with the same objects and the same authorities, and leaves nothing behind.
//
// kcpctl is the real program, and the API server a real one with its etcd. Controllers, nodes and kcp are simulated, so that a
// case takes seconds. The tests of test/e2e have real ones.
package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcpctl/kcpctl/test/apiserver"
)

// shared is the world of all tests of this package. It is a variable because TestMain has no other way to pass it.
var shared *world

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // trade memory for time
	os.Exit(apiserver.With(func(ctx context.Context, server *apiserver.Server) (int, error) {
		w, err := newWorld(ctx, server)
		if err != nil {
			return 1, err
		}
		defer w.proxy.stop()
		shared = w
		return m.Run(), nil
	}))
}

// world is shared by all cases.
type world struct {
	// binary is the path of kcpctl.
	binary string
	admin  dynamic.Interface
	// resources are all kinds of namespaced objects, except pods and events.
	resources []schema.GroupVersionResource
	proxy     *proxy
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
	config, err := adminConfig(server)
	if err != nil {
		return nil, err
	}
	if w.admin, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if w.resources, err = namespaced(config); err != nil {
		return nil, err
	}
	if err := w.furnish(ctx); err != nil {
		return nil, err
	}
	if err := (&standin{admin: w.admin, place: w.at}).run(ctx); err != nil {
		return nil, err
	}
	w.keys = &keyring{admin: w.admin, place: w.at}
	if err := w.keys.run(ctx); err != nil {
		return nil, err
	}
	w.proxy, err = startProxy(config, w.with)
	return w, err
}

func adminConfig(server *apiserver.Server) (*rest.Config, error) {
	kubeconfig, err := server.Kubeconfig(apiserver.Admin)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	return config, nil
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
			if slices.Contains(r.Verbs, "list") && r.Name != pods.Resource && r.Name != "events" {
				out = append(out, gv.WithResource(r.Name))
			}
		}
	}
	return out, nil
}

// furnish creates a node and a storage class, which checks require.
func (w *world) furnish(ctx context.Context) error {
	for _, it := range []struct {
		gvr schema.GroupVersionResource
		o   map[string]any
	}{
		{schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}, map[string]any{
			"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "example.com/none",
			"metadata": map[string]any{
				"name": "standard", "annotations": map[string]any{"storageclass.kubernetes.io/is-default-class": "true"},
			},
		}},
		{schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, map[string]any{
			"apiVersion": "v1", "kind": "Node",
			"metadata": map[string]any{"name": "node", "labels": map[string]any{"kubernetes.io/arch": "amd64"}},
			"status":   map[string]any{"nodeInfo": map[string]any{"architecture": "amd64"}},
		}},
	} {
		if _, err := w.admin.Resource(it.gvr).Create(ctx, &unstructured.Unstructured{Object: it.o}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// at returns the place of a namespace, or nil.
func (w *world) at(namespace string) *place {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.places[namespace]
}

// with returns the place of a token, or nil.
func (w *world) with(token string) *place {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.places {
		if p.token == token {
			return p
		}
	}
	return nil
}

func (w *world) add(p *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.places[p.namespace] = p
}

// remove forgets a place. The objects in its namespace stay: without controllers a namespace cannot be deleted.
func (w *world) remove(p *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.places, p.namespace)
}
