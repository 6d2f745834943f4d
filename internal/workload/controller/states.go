package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/puller"
)

// RunSyncer runs the syncer of a cluster that the controller does not connect to, until the context ends. It reports which of the
// published APIs the cluster can serve.
func RunSyncer(ctx context.Context, m Member) error {
	cfg := rest.CopyConfig(m.KCP)
	cfg.Host, cfg.QPS = strings.TrimRight(cfg.Host, "/")+"/clusters/"+m.Workspace, -1
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	live, err := client.Resource(api.ClusterGVR()).Get(ctx, m.Cluster, metav1.GetOptions{})
	if err != nil {
		return clierr.New(clierr.Failed, "create it, or specify the workspace with --workspace", "read Cluster %s in workspace %s: %w", m.Cluster, m.Workspace, err)
	}
	cl, err := api.ClusterOf(live)
	if err != nil {
		return err
	}
	if cl.Mode() == api.SyncModePush {
		return clierr.New(clierr.Conflict, "set spec.syncMode of the Cluster to None", "the controller syncs Cluster %s itself: its syncMode is Push", m.Cluster)
	}
	m.Mode, m.Setup = cl.Mode(), live.GetAnnotations()["kcp.io/cluster"]
	o := &observer{cluster: m.Cluster, client: client, physical: m.Physical}
	m.Extend = o.extend
	go o.run(ctx)
	return m.Run(ctx)
}

// observer compares what a cluster serves with what is published.
type observer struct {
	cluster  string
	client   dynamic.Interface
	physical *rest.Config
	// seen is the version of what was compared last.
	seen string

	mu      sync.Mutex
	version string
	states  []api.APIStatus
}

func (o *observer) extend(r *heartbeat.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.ClusterVersion, r.APIs = o.version, o.states
}

func (o *observer) run(ctx context.Context) {
	for {
		if err := o.observe(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot compare the APIs of the cluster with those that are published, retrying")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryInterval):
		}
	}
}

// observe compares if anything has changed.
func (o *observer) observe(ctx context.Context) error {
	p, err := puller.New(o.physical)
	if err != nil {
		return err
	}
	hash, err := p.Hash(ctx)
	if err != nil {
		return err
	}
	export, err := o.client.Resource(exports).Get(ctx, api.ExportWorkloads, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read APIExport %s: %w", api.ExportWorkloads, err)
	}
	version := hash + export.GetResourceVersion()
	if version == o.seen {
		return nil
	}
	if err := o.compare(ctx, p, export); err != nil {
		return err
	}
	o.seen = version
	return nil
}

func (o *observer) compare(ctx context.Context, p *puller.Puller, export *unstructured.Unstructured) error {
	list, err := o.client.Resource(schemas).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list APIResourceSchemas: %w", err)
	}
	in := negotiate.Input{Export: export}
	for i := range list.Items {
		in.Schemas = append(in.Schemas, &list.Items[i])
	}
	resources, _, _ := unstructured.NestedSlice(export.Object, "spec", "resources")
	var published []schema.GroupResource
	for _, r := range resources {
		if m, ok := r.(map[string]any); ok {
			group, _ := m["group"].(string)
			name, _ := m["name"].(string)
			published = append(published, schema.GroupResource{Group: group, Resource: name})
		}
	}
	result, err := p.Pull(ctx, published)
	if err != nil {
		return err
	}
	in.Clusters = []negotiate.Cluster{served(o.cluster, result)}
	out, err := negotiate.Negotiate(in)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.version, o.states = result.Version, out.States[o.cluster]
	return nil
}

// served returns what a cluster serves.
func served(name string, result *puller.Result) negotiate.Cluster {
	out := negotiate.Cluster{Name: name, Problems: map[schema.GroupResource]string{}}
	for _, a := range result.APIs {
		out.APIs = append(out.APIs, negotiate.API(a))
	}
	for _, p := range result.Problems {
		out.Problems[p.GroupResource] = p.Err.Error()
	}
	return out
}
