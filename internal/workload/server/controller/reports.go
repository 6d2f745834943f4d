package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/refused"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/apis/served"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// reports are what syncers report about their clusters: what they serve, in ConfigMaps that the controller watches, and
// which clusters they are, in their Leases.
type reports struct {
	*workspace
	// push returns the UID of a cluster in push mode, which the controller reads itself.
	push  func(cluster string) types.UID
	apis  []schema.GroupResource
	now   func() time.Time
	every func(time.Duration) time.Duration
	// of are the reports by name of the cluster.
	of map[string]*reported
}

// record has the state of a physical cluster.
type record struct {
	negotiate.Cluster
	// uid identifies the physical cluster, and hash what it serves. Empty: that is not known.
	uid  types.UID
	hash string
}

func (p *reports) record(cluster string) record {
	if r := p.of[cluster]; r != nil {
		return r.record
	}
	return record{Cluster: negotiate.Cluster{Name: cluster}}
}

// reported is the report of the syncer of a Cluster.
type reported struct {
	// cluster is the UID of the Cluster: another one can have had its name.
	cluster types.UID
	record
	// complete reports whether the syncer has reported all APIs once.
	complete bool
	apis     map[schema.GroupResource]content
	// problem is why some ConfigMaps could not be read.
	problem error
}

// content is an API as a cluster serves it.
type content struct {
	served.API
	// hash identifies the API. Empty: it could not be read yet.
	hash string
	// version identifies the ConfigMap that was read last. After a problem, an earlier one has the API.
	version uint64
	problem error
	// again is when the schema, which kcp refuses, is sent again. Zero: kcp does not refuse it.
	again time.Time
}

// read reads the ConfigMaps that have changed. It fails if kcp could not check some of them: the next pass reads them.
func (p *reports) read(ctx context.Context, clusters []*api.Cluster,
	verdicts map[string]heartbeat.Verdict) error {
	known := p.of
	p.of = map[string]*reported{}
	var problems []error
	for _, cl := range clusters {
		r := known[cl.Name]
		if r == nil || r.cluster != cl.UID {
			r = &reported{cluster: cl.UID, apis: map[schema.GroupResource]content{}}
			r.Name = cl.Name
		}
		p.of[cl.Name] = r
		if v := verdicts[cl.Name]; v.Reported {
			r.uid = v.Report.ClusterUID
			r.complete = r.complete || p.isComplete(cl, v.Report)
		}
		if cl.Mode() == v1alpha1.SyncModePush {
			r.uid = p.push(cl.Name)
		}
		if r.uid != "" && r.complete { // without the UID, it can be a cluster that has no part in the schemas
			problems = append(problems, p.readCluster(ctx, cl, r))
		}
	}
	return errors.Join(problems...)
}

// isCurrent reports whether the syncer of a Cluster, as it is now, runs in the physical cluster with a UID.
func (p *reports) isCurrent(ctx context.Context, cl *api.Cluster, uid types.UID) (bool, error) {
	name := api.LeaseCluster(cl.Name)
	lease, err := p.client.Resource(heartbeat.Leases).Namespace(api.NamespaceLeases).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Lease %s/%s in workspace %s: %w", api.NamespaceLeases, name, p.path, err)
	}
	report, err := heartbeat.ReportOf(lease)
	return err == nil && report.ClusterUID == uid && report.IsFor(cl.UID), nil
}

// isComplete reports whether a syncer has reported all APIs for the first time: the cluster would be ready with some of
// them. The syncer sends the version of its cluster after it has written the ConfigMaps, which can be seen after that.
func (p *reports) isComplete(cl *api.Cluster, report heartbeat.Report) bool {
	all := slices.Concat(byGroup(cl.Status.APIs)...) // none before the controller has seen a new Cluster
	return report.ClusterVersion != "" && (report.SchemasProblem != "" || len(all) > 0 &&
		!slices.ContainsFunc(all, func(gr schema.GroupResource) bool {
			o := p.object(configMaps, api.NamespaceLeases, api.ConfigMapCluster(cl.Name, gr))
			return o == nil || !served.IsOf(o, cl.UID)
		}))
}

// readCluster reads the ConfigMaps of a cluster. One that is gone says nothing: what was read is kept.
func (p *reports) readCluster(ctx context.Context, cl *api.Cluster, r *reported) error {
	var unchecked error
	for _, gr := range p.apis {
		name, last := api.ConfigMapCluster(cl.Name, gr), r.apis[gr]
		version := p.set.Version(configMaps, watch.Key{Cluster: p.cluster, Namespace: api.NamespaceLeases, Name: name})
		if version == last.version && (last.again.IsZero() || p.now().Before(last.again)) {
			continue
		}
		o := p.object(configMaps, api.NamespaceLeases, name)
		if o == nil || !served.IsOf(o, cl.UID) {
			continue
		}
		last.version = version
		next, err := p.content(ctx, gr, o, last)
		if err != nil {
			unchecked = fmt.Errorf("check the schema of %s of cluster %s: %w", gr, cl.Name, err)
			break
		}
		r.apis[gr] = next
		r.summarize()
	}
	problems := []error{unchecked}
	for _, gr := range p.apis {
		problems = append(problems, r.apis[gr].problem)
	}
	r.problem = errors.Join(problems...)
	return unchecked
}

// content reads a ConfigMap, and returns what is known of the API then: one that cannot be read does not replace the
// last one. A schema that kcp refuses becomes a problem of the API: it must not prevent the publication of others.
func (p *reports) content(ctx context.Context, gr schema.GroupResource, o *unstructured.Unstructured,
	last content) (content, error) {
	last.problem = nil
	last.again = time.Time{}
	hash := served.Hash(o)
	for _, r := range p.of {
		if same, ok := r.apis[gr]; ok && same.hash == hash && same.again.IsZero() {
			last.hash = hash
			last.API = same.API // clusters that serve the same share the memory
			return last, nil
		}
	}
	a, err := served.Decode(gr, o)
	if err != nil {
		last.problem = fmt.Errorf("ConfigMap %s/%s: %w; the syncer writes it again when it notices", o.GetNamespace(),
			o.GetName(), err)
		klog.FromContext(ctx).Error(last.problem, "Cannot read what a syncer reports")
		return last, nil
	}
	last.hash = hash
	why, err := p.refused(ctx, a)
	if why != "" {
		a = served.API{Problem: refusedSchema + why}
		last.again = p.now().Add(p.every(refused.Interval))
	}
	last.API = a
	return last, err
}

// summarize sets what the cluster serves from its APIs, as far as that is known.
func (r *reported) summarize() {
	r.APIs = nil
	r.Problems = map[schema.GroupResource]string{}
	hashes := map[string]string{}
	for gr, a := range r.apis {
		r.APIs = append(r.APIs, a.Versions...)
		if a.Problem != "" {
			r.Problems[gr] = heartbeat.Cut(a.Problem)
		}
		hashes[gr.String()] = fmt.Sprint(a.hash, a.again.IsZero())
	}
	r.hash = fmt.Sprint(hashes) // in the order of the keys
}

// unreported is the message about an API that a syncer has not reported yet.
const unreported = "the syncer has not reported the API yet"

// statesOf completes the states of the APIs of a cluster: APIs that its syncer has not reported keep their states.
func statesOf(cl *api.Cluster, known negotiate.Cluster, negotiated []api.APIStatus) []api.APIStatus {
	out := slices.Clone(negotiated)
	for i, a := range out {
		gr := a.GroupResource()
		if known.Knows(gr) || a.State == api.APIRemoved {
			continue
		}
		at := slices.IndexFunc(cl.Status.APIs, func(b api.APIStatus) bool { return b.GroupResource() == gr })
		if at >= 0 && cl.Status.APIs[at].State != api.APIRemoved { // the setup has it again
			out[i] = cl.Status.APIs[at]
		} else {
			out[i] = api.APIStatus{Group: a.Group, Resource: a.Resource, State: api.APIIgnored, Message: unreported}
		}
	}
	return out
}

// unreadable returns why the APIs of a cluster are not known, or are old. It is empty if they are known.
func (p *reports) unreadable(cl *api.Cluster, report heartbeat.Report) string {
	r := p.of[cl.Name]
	switch {
	case r == nil:
		return ""
	case r.problem != nil:
		return r.problem.Error()
	case report.SchemasProblem != "":
		return "the syncer cannot report the APIs of the cluster: " + report.SchemasProblem
	}
	return ""
}

// acceptedFor and mostAccepted limit the names of APIResourceSchemas that are known to be accepted by kcp. A name has a
// hash of the content, so that the schemas of clusters that serve the same are checked once.
const (
	acceptedFor  = time.Hour
	mostAccepted = 1000
)

// create creates an APIResourceSchema. If kcp refuses the schema, it returns the reason. That the controller lacks the
// rights is an error: it says nothing about the schema.
func (w *workspace) create(ctx context.Context, s *unstructured.Unstructured, dryRun ...string) (why string, _ error) {
	_, err := w.client.Resource(schemas).Create(ctx, s,
		metav1.CreateOptions{FieldManager: api.ManagerController, DryRun: dryRun})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		w.accepted.Add(s.GetName(), nil, acceptedFor)
		return "", nil
	case refused.LacksRights(err):
	case refused.By(err) != "":
		return refused.By(err), nil
	}
	return "", fmt.Errorf("create APIResourceSchema %s in workspace %s: %w", s.GetName(), w.path, err)
}

// refused returns why kcp refuses the schema of an API as a cluster serves it. It is empty if it does not.
func (w *workspace) refused(ctx context.Context, a served.API) (string, error) {
	for i := range a.Versions {
		s, err := negotiate.Schema(&a.Versions[i])
		if err != nil {
			return "", err
		}
		if _, accepted := w.accepted.Get(s.GetName()); accepted {
			continue
		}
		if why, err := w.create(ctx, s, metav1.DryRunAll); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

// refusedSchema begins the problem of an API whose schema in the cluster kcp refuses.
const refusedSchema = "kcp refuses its schema: "

// unreadable returns the condition APIsCompatible of a cluster whose APIs are not known, are old, or could not be
// published.
func (c *controller) unreadable(d *draft) *metav1.Condition {
	reason, message := api.ReasonSchemasUnreadable, c.reports.unreadable(d.Cluster, d.verdict.Report)
	if message == "" {
		reason = api.ReasonPublicationRefused
		message = c.publisher.denied
	}
	if message == "" {
		return nil
	}
	return &metav1.Condition{Type: api.ConditionAPIsCompatible, Status: metav1.ConditionUnknown, Reason: reason,
		Message: message}
}

// deny records why kcp refuses what is published, for the status of the clusters. Other errors pass.
func (p *publisher) deny(err error) {
	p.denied = ""
	switch why := refused.By(err); {
	case refused.LacksRights(err):
		p.denied = "the controller lacks the rights to publish the APIs: run kcpctl up, which gives them. " +
			err.Error()
	case why != "":
		p.denied = "kcp refuses what the controller publishes: " + err.Error()
	}
}
