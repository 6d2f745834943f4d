package controller

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
	"github.com/kcpctl/kcpctl/internal/kit/refused"
	"github.com/kcpctl/kcpctl/internal/workload/apis/puller"
	"github.com/kcpctl/kcpctl/internal/workload/apis/served"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/syncer"
)

// observer reports what a cluster serves: the APIs in the status of its Cluster, which the controller writes.
type observer struct {
	workspace string
	uid       types.UID
	mode      v1alpha1.SyncMode
	client    dynamic.Interface
	metadata  metadata.Interface
	identity  *syncer.Identity
	after     func(time.Duration) <-chan time.Time
	// reported is the version of the last report, and written the resourceVersions of its ConfigMaps, by name.
	reported string
	written  map[string]string
	// wake requests a heartbeat, because the report in it has changed.
	wake poll.Signal
	// wanted ends the wait for the next look: the Cluster has other APIs.
	wanted poll.Signal

	mu sync.Mutex
	// removed is set when another Cluster has the name.
	removed bool
	// cluster is the Cluster as it was seen last. Nil: it was not seen yet.
	cluster *api.Cluster
	version string
	problem string
}

func newObserver(m Member, client dynamic.Interface, meta metadata.Interface) *observer {
	o := &observer{
		workspace: m.Workspace, uid: m.UID, mode: m.Mode, client: client, metadata: meta, wake: poll.NewSignal(),
		wanted: poll.NewSignal(), after: m.after,
	}
	o.identity = &syncer.Identity{Physical: m.Physical, Changed: o.wake.Send}
	return o
}

func (o *observer) extend(r *heartbeat.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.ClusterVersion = o.version
	r.ClusterUID = o.identity.UID()
	r.SchemasProblem = o.problem
}

// run reports until the context ends. It fails if another Cluster has the name.
func (o *observer) run(ctx context.Context) error {
	last := ""
	for {
		if o.isRemoved() {
			return clierr.New(clierr.Conflict, "start it again if it is for this Cluster, or else remove it",
				"the Cluster in workspace %s that this syncer works for was removed, and another one has its name",
				o.workspace)
		}
		wait, err := o.observe(ctx)
		text := fmt.Sprint(err)
		if err != nil && text != last && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot report the APIs of the cluster, retrying", "server",
				o.identity.Physical.Host)
		}
		last = text
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
			return nil
		case <-o.after(wait):
		case <-o.wanted:
		}
	}
}

func (o *observer) isRemoved() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.removed
}

// see requests a look at the APIs if they or the UID have changed in the status of the Cluster: the controller adds
// them when it sees a new Cluster, and adds others when the setup has them. Another Cluster under the name is not that
// of this syncer.
func (o *observer) see(cl *api.Cluster) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cl.UID == o.uid {
		last := o.cluster
		o.cluster = cl
		if last != nil && reportOf(last) == reportOf(cl) {
			return
		}
	}
	o.removed = cl.UID != o.uid
	o.wanted.Send()
}

// reportOf identifies what is to be reported to a Cluster.
func reportOf(cl *api.Cluster) string {
	return fmt.Sprint(cl.UID, cl.Status.UID, byGroup(cl.Status.APIs))
}

// set changes the report. If that makes a difference, a heartbeat sends it.
func (o *observer) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	version := o.version
	problem := o.problem
	if change(); version != o.version || problem != o.problem {
		o.wake.Send()
	}
}

// observe reports if anything has changed. It returns the time until the next look.
func (o *observer) observe(ctx context.Context) (time.Duration, error) {
	o.mu.Lock()
	cl := o.cluster
	o.mu.Unlock()
	if cl == nil || len(byGroup(cl.Status.APIs)) == 0 {
		return retryInterval, nil // see notices when there are some
	}
	if err := o.identity.Confirm(ctx, cl); err != nil {
		if cl.Status.UID == "" && o.identity.UID() != "" {
			err = nil // see notices when the controller has recorded it
		}
		return retryInterval, err
	}
	p, err := puller.New(o.identity.Physical)
	if err != nil {
		return retryInterval, err
	}
	hash, err := p.Hash(ctx)
	if err != nil {
		return retryInterval, err
	}
	version := hash + " " + reportOf(cl)
	if version == o.reported {
		if intact, err := o.intact(ctx); intact || err != nil {
			return retryInterval, err
		}
	}
	o.reported = ""
	if err := o.report(ctx, p, cl); err != nil {
		return refused.Interval, err // each report reads everything
	}
	o.reported = version
	return retryInterval, nil
}

// intact reports whether one of the ConfigMaps is as it was written, such as after a backup of kcp was restored. It is
// one at random, so that a cluster needs one small request for that, whatever the number of its APIs.
func (o *observer) intact(ctx context.Context) (bool, error) {
	for name, version := range o.written {
		live, err := o.metadata.Resource(configMaps).Namespace(api.NamespaceLeases).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("read ConfigMap %s/%s in workspace %s: %w", api.NamespaceLeases,
				name, o.workspace, err)
		}
		return live.GetResourceVersion() == version, nil
	}
	return true, nil
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
func (o *observer) report(ctx context.Context, p *puller.Puller, cl *api.Cluster) error {
	if o.mode != v1alpha1.SyncModePush { // the controller does it for all clusters, when it has published
		defer debug.FreeOSMemory()
	}
	version := ""
	var configMaps []*unstructured.Unstructured
	for _, all := range byGroup(cl.Status.APIs) {
		result, err := p.Pull(ctx, all)
		if err != nil {
			return err
		}
		version = result.Version
		for _, gr := range all {
			content, err := served.Encode(served.Of(gr, result.Cluster))
			if err != nil {
				return fmt.Errorf("API %s: %w", gr, err)
			}
			configMaps = append(configMaps, served.Object(cl.Name, cl.UID, gr, content))
		}
	}
	o.written = map[string]string{}
	var problems []error
	for _, u := range configMaps {
		problems = append(problems, o.write(ctx, u))
	}
	o.set(func() { o.version = version }) // the first report is complete
	if err := errors.Join(problems...); err != nil {
		return unwrittenError{err}
	}
	return nil
}

// unwrittenError means that the last report is old, because kcp has not accepted the next one. Other errors do not mean
// that, such as when a cluster does not answer.
type unwrittenError struct{ error }

func (o *observer) write(ctx context.Context, u *unstructured.Unstructured) error {
	live, err := o.client.Resource(configMaps).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u,
		metav1.ApplyOptions{FieldManager: api.ManagerSyncer, Force: true})
	if err != nil {
		return fmt.Errorf("apply ConfigMap %s/%s in workspace %s: %w", u.GetNamespace(),
			u.GetName(), o.workspace, err)
	}
	o.written[u.GetName()] = live.GetResourceVersion()
	return nil
}
