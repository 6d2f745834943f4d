package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/apis/puller"
	"github.com/kcpctl/kcpctl/internal/workload/apis/served"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
)

// configMaps are where syncers report what their clusters serve.
var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// observer reports what a cluster serves that the controller cannot read: the APIs in the status of its Cluster, which
// the controller writes.
type observer struct {
	cluster, workspace string
	client             dynamic.Interface
	metadata           metadata.Interface
	physical           *rest.Config
	begin              func(what string) (end func())
	// seen is the version of what was reported last.
	seen string
	// written are the resourceVersions of the ConfigMaps of the last report, by name, and looks the number of looks at
	// one of them.
	written map[string]string
	looks   int
	// wake sends the hashes with a heartbeat.
	wake chan<- struct{}
	// wanted ends the wait for the next look: the status of the Cluster has other APIs.
	wanted chan struct{}
	after  func(time.Duration) <-chan time.Time

	mu sync.Mutex
	// last are the APIs in the status of the Cluster.
	last    []schema.GroupResource
	version string
	uid     types.UID
	hashes  map[string]string
	problem string
}

func (o *observer) extend(r *heartbeat.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.ClusterVersion = o.version
	r.ClusterUID = o.uid
	r.Schemas = o.hashes
	r.SchemasProblem = o.problem
}

func (o *observer) run(ctx context.Context) {
	for {
		wait, err := o.observe(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot report the APIs of the cluster, retrying")
		}
		o.set(func() {
			_, unwritten := errors.AsType[unwrittenError](err)
			switch {
			case err == nil:
				o.problem = ""
			case unwritten || o.version == "":
				o.problem = err.Error()
			}
		})
		select {
		case <-ctx.Done():
			return
		case <-o.after(wait):
		case <-o.wanted:
		}
	}
}

// see requests a look at the APIs if they have changed in the status of the Cluster: the controller adds them when it
// sees a new Cluster, and adds others when the setup has them.
func (o *observer) see(cl *api.Cluster) {
	all := slices.Concat(byGroup(cl.Status.APIs)...)
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Equal(all, o.last) {
		return
	}
	o.last = all
	select {
	case o.wanted <- struct{}{}:
	default:
	}
}

// set changes the report. If that makes a difference, a heartbeat sends it.
func (o *observer) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	version, uid, hashes, problem := o.version, o.uid, maps.Clone(o.hashes), o.problem
	change()
	if o.version == version && o.uid == uid && o.problem == problem && maps.Equal(o.hashes, hashes) {
		return
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// observe reports if anything has changed. It returns the time until the next look.
func (o *observer) observe(ctx context.Context) (time.Duration, error) {
	defer o.begin("the report of APIs")()
	p, err := puller.New(o.physical)
	if err != nil {
		return retryInterval, err
	}
	hash, err := p.Hash(ctx)
	if err != nil {
		return retryInterval, err
	}
	live, err := o.client.Resource(api.ClusterGVR()).Get(ctx, o.cluster, metav1.GetOptions{})
	if err != nil {
		return retryInterval, fmt.Errorf("read Cluster %s in workspace %s: %w", o.cluster, o.workspace, err)
	}
	cl, err := api.ClusterOf(live)
	if err != nil {
		return retryInterval, err
	}
	groups, version := byGroup(cl.Status.APIs), hash+" "+string(cl.UID)
	for _, all := range groups {
		version += fmt.Sprint(" ", all)
	}
	if len(groups) == 0 {
		return retryInterval, nil // see notices when there are some
	}
	if version == o.seen {
		if intact, err := o.intact(ctx); intact || err != nil {
			return retryInterval, err
		}
		o.seen = ""
	}
	if err := o.report(ctx, p, cl, groups); err != nil {
		return pullInterval, err // it has read everything
	}
	o.seen = version
	return retryInterval, nil
}

// intact reports whether a ConfigMap is as it was written: at each look another one, so that a cluster needs one small
// request for that, whatever the number of its APIs.
func (o *observer) intact(ctx context.Context) (bool, error) {
	names := slices.Sorted(maps.Keys(o.written))
	if len(names) == 0 {
		return true, nil
	}
	name := names[o.looks%len(names)]
	o.looks++
	live, err := o.metadata.Resource(configMaps).Namespace(api.NamespaceLeases).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read ConfigMap %s/%s in workspace %s: %w", api.NamespaceLeases,
			name, o.workspace, err)
	}
	return live.GetResourceVersion() == o.written[name], nil
}

// byGroup returns the APIs of a status that the syncer reports, by group. The status is sorted. kcp does not allow the
// syncer to report an API that the setup no longer has.
func byGroup(all []api.APIStatus) (out [][]schema.GroupResource) {
	for _, a := range all {
		gr := a.GroupResource()
		if a.State == api.APIRemoved {
			continue
		}
		if n := len(out); n > 0 && out[n-1][0].Group == gr.Group {
			out[n-1] = append(out[n-1], gr)
			continue
		}
		out = append(out, []schema.GroupResource{gr})
	}
	return out
}

// report writes what the cluster serves. It reads one group after another, because the schemas of a group need tens of
// megabytes while they are read. An API that cannot be written does not prevent the others.
func (o *observer) report(ctx context.Context, p *puller.Puller, cl *api.Cluster,
	groups [][]schema.GroupResource) error {
	defer debug.FreeOSMemory()
	hashes := map[string]string{}
	o.written = map[string]string{}
	var problems []error
	uid, err := identify(ctx, o.physical)
	if err != nil {
		return err
	}
	version := ""
	for _, all := range groups {
		result, err := p.Pull(ctx, all)
		if err != nil {
			return err
		}
		version = result.Version
		own := Served(o.cluster, result)
		for _, gr := range all {
			hash, err := o.write(ctx, cl, gr, served.Of(gr, own))
			if err != nil {
				problems = append(problems, err)
				continue
			}
			hashes[gr.String()] = hash
		}
	}
	o.set(func() { o.version, o.uid, o.hashes = version, uid, hashes })
	if len(problems) > 0 {
		return unwrittenError{errors.Join(problems...)}
	}
	return nil
}

// unwrittenError means that the last report is old, because kcp has not accepted the next one. Other errors do not mean
// that, such as when a cluster does not answer.
type unwrittenError struct{ error }

// write writes the ConfigMap of an API.
func (o *observer) write(ctx context.Context, cl *api.Cluster, gr schema.GroupResource,
	a served.API) (hash string, _ error) {
	content, hash, err := served.Encode(a)
	if err != nil {
		return "", fmt.Errorf("API %s: %w", gr, err)
	}
	u := served.Object(cl.Name, cl.UID, gr, content)
	live, err := o.client.Resource(configMaps).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u,
		metav1.ApplyOptions{FieldManager: api.ManagerSyncer, Force: true})
	if err != nil {
		return "", fmt.Errorf("apply ConfigMap %s/%s in workspace %s: %w", u.GetNamespace(),
			u.GetName(), o.workspace, err)
	}
	o.written[u.GetName()] = live.GetResourceVersion()
	return hash, nil
}

// Served returns what a cluster serves, as the controller compares it.
func Served(name string, result *puller.Result) negotiate.Cluster {
	out := negotiate.Cluster{Name: name, Problems: map[schema.GroupResource]string{}}
	for _, a := range result.APIs {
		out.APIs = append(out.APIs, negotiate.API(a))
	}
	for _, p := range result.Problems {
		out.Problems[p.GroupResource] = strings.TrimSpace(p.Err.Error())
	}
	return out
}
