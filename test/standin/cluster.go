// Package standin simulates what a kube-apiserver of package apiserver lacks to host a kcp: the controllers of
// workloads, volume claims and namespaces, a node whose pods are ready at once, and a kcp that answers through them.
// Package faults tests kcpctl with it, and package bench measures kcpctl with it, because neither needs a real kcp, and
// a real one is slow.
package standin

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// The resources that the stand-in reads or writes.
var (
	Deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	StatefulSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	Pods         = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	Claims       = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	Secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	ConfigMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

	namespaces     = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	nodes          = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	storageClasses = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
)

// Cluster is an API server with the stand-in. The namespaces of its sites are simulated, all others are not.
type Cluster struct {
	// Admin is a client with all rights.
	Admin dynamic.Interface
	// Config is the configuration of that client.
	Config *rest.Config

	mu    sync.Mutex
	sites map[string]*Site // by namespace
}

// Start furnishes a new API server and simulates its cluster until ctx ends.
func Start(ctx context.Context, server *apiserver.Server) (*Cluster, error) {
	config, err := adminConfig(server)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Config: config, sites: map[string]*Site{}}
	if c.Admin, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if err := c.furnish(ctx); err != nil {
		return nil, err
	}
	return c, c.control(ctx)
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

// furnish creates a node and a storage class, which checks require.
func (c *Cluster) furnish(ctx context.Context) error {
	for _, it := range []struct {
		gvr schema.GroupVersionResource
		o   map[string]any
	}{
		{storageClasses, map[string]any{
			"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "example.com/none",
			"metadata": map[string]any{
				"name": "standard", "annotations": map[string]any{"storageclass.kubernetes.io/is-default-class": "true"},
			},
		}},
		{nodes, map[string]any{
			"apiVersion": "v1", "kind": "Node",
			"metadata": map[string]any{"name": "node", "labels": map[string]any{"kubernetes.io/arch": "amd64"}},
			"status":   map[string]any{"nodeInfo": map[string]any{"architecture": "amd64"}},
		}},
	} {
		if _, err := c.Admin.Resource(it.gvr).Create(ctx, &unstructured.Unstructured{Object: it.o}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// Add adds a site: a namespace that need not exist yet, with a kcp that answers while its pods run.
func (c *Cluster) Add(namespace string, kcp *fakekcp.Kcp) *Site {
	s := newSite(c.Admin, namespace, kcp)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sites[namespace] = s
	return s
}

// Remove forgets a site. The objects in its namespace stay.
func (c *Cluster) Remove(s *Site) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sites, s.Namespace)
}

// At returns the site of a namespace, or nil.
func (c *Cluster) At(namespace string) *Site {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sites[namespace]
}

// with returns the site of a token, or nil.
func (c *Cluster) with(token string) *Site {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sites {
		if s.token == token {
			return s
		}
	}
	return nil
}
