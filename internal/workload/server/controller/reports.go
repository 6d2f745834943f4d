package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/apis/served"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
)

// reported is the report of a syncer about a cluster that the controller cannot read.
type reported struct {
	// hashes are the hashes in the report when the ConfigMaps were read, and apis the contents of the ConfigMaps.
	hashes map[string]string
	apis   map[schema.GroupResource]content
	// uid identifies the physical cluster.
	uid types.UID
	// problem is why some could not be read, and tried when that was tried with which hashes.
	problem error
	tried   map[string]string
	at      time.Time
}

// content is an API as a cluster serves it, with the hash of what was read.
type content struct {
	served.API
	hash string
}

// readReports reads what the syncers of clusters have reported since the last time. Reports that cannot be read do not
// replace others.
func (c *controller) readReports(ctx context.Context, clusters []*api.Cluster) {
	known := c.reports
	c.reports = map[string]*reported{}
	for _, cl := range clusters {
		if cl.Mode() == api.SyncModePush {
			continue
		}
		r := known[cl.Name]
		if r == nil {
			r = &reported{hashes: map[string]string{}, apis: map[schema.GroupResource]content{}}
		}
		c.reports[cl.Name] = r
		lease := c.lease(cl.Name)
		if lease == nil {
			continue
		}
		// writeStatus reports a Lease without a report.
		if report, err := heartbeat.ReportOf(lease); err == nil && ctx.Err() == nil {
			r.uid = report.ClusterUID
			c.readReport(ctx, cl.Name, r, report)
		}
	}
}

// readReport reads the ConfigMaps of a report that have changed.
func (c *controller) readReport(ctx context.Context, cluster string, r *reported, report heartbeat.Report) {
	now := c.Now()
	if r.problem != nil && maps.Equal(r.tried, report.Schemas) && now.Sub(r.at) < c.every(retryInterval) {
		return
	}
	var problems []error
	for _, gr := range c.APIs {
		hash := report.Schemas[gr.String()]
		if hash == "" || hash == r.hashes[gr.String()] {
			continue
		}
		a, err := c.readAPI(ctx, cluster, gr)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		r.hashes[gr.String()], r.apis[gr] = hash, a
	}
	before := r.problem
	r.problem, r.tried, r.at = errors.Join(problems...), report.Schemas, now
	if r.problem != nil && (before == nil || before.Error() != r.problem.Error()) {
		klog.FromContext(ctx).Error(r.problem, "Cannot read what a syncer reports, retrying", "cluster", cluster)
	}
}

// forgetReports deletes the ConfigMaps of a cluster that the controller reads itself now, when its own syncer sends the
// first heartbeat: the one before, which the status still has, cannot write them again.
func (c *controller) forgetReports(ctx context.Context, cl *api.Cluster, mode api.SyncMode) error {
	if before := cl.Status.Syncer; mode != api.SyncModePush || before == nil || before.Mode == api.SyncModePush {
		return nil
	}
	all := slices.Clone(c.APIs)
	for _, a := range cl.Status.APIs {
		if !slices.Contains(all, a.GroupResource()) {
			all = append(all, a.GroupResource())
		}
	}
	for _, gr := range all {
		name := api.ConfigMapCluster(cl.Name, gr)
		err := c.client.Resource(configMaps).Namespace(api.NamespaceLeases).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete ConfigMap %s/%s: %w", api.NamespaceLeases, name, err)
		}
	}
	return nil
}

// readAPI reads what a syncer has reported about an API. A schema that kcp refuses becomes a problem: it must not
// prevent the publication of others.
func (c *controller) readAPI(ctx context.Context, cluster string, gr schema.GroupResource) (content, error) {
	name := api.ConfigMapCluster(cluster, gr)
	o, err := c.client.Resource(configMaps).Namespace(api.NamespaceLeases).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return content{}, fmt.Errorf("read ConfigMap %s/%s: %w", api.NamespaceLeases, name, err)
	}
	a, hash, err := served.Decode(gr, o)
	if err != nil {
		return content{}, fmt.Errorf("ConfigMap %s/%s: %w; the syncer writes it again when it notices",
			api.NamespaceLeases, name, err)
	}
	for _, r := range c.reports {
		if same, ok := r.apis[gr]; ok && same.hash == hash {
			return same, nil // clusters that serve the same share the memory
		}
	}
	refused, err := c.refused(ctx, a)
	switch {
	case err != nil:
		return content{}, fmt.Errorf("check the schema of %s of cluster %s: %w", gr, cluster, err)
	case refused != "":
		a = served.API{Problem: "kcp refuses its schema: " + refused}
	}
	return content{a, hash}, nil
}

// refused returns why kcp refuses a schema. It is empty if it does not.
func (c *controller) refused(ctx context.Context, a served.API) (string, error) {
	for i := range a.Versions {
		s, err := negotiate.Schema(&a.Versions[i])
		if err != nil {
			return "", err
		}
		_, err = c.client.Resource(schemas).Create(ctx, s,
			metav1.CreateOptions{FieldManager: api.ManagerController, DryRun: []string{metav1.DryRunAll}})
		switch {
		case apierrors.IsInvalid(err):
			return err.Error(), nil
		case err != nil && !apierrors.IsAlreadyExists(err):
			return "", err
		}
	}
	return "", nil
}

// served returns what a cluster serves, as far as that is known.
func (r *reported) served(name string) negotiate.Cluster {
	out := negotiate.Cluster{Name: name, Problems: map[schema.GroupResource]string{}}
	for gr, a := range r.apis {
		out.APIs = append(out.APIs, a.Versions...)
		if a.Problem != "" {
			out.Problems[gr] = heartbeat.Cut(a.Problem)
		}
	}
	return out
}

// hash identifies what a cluster serves.
func (r *reported) hash() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(r.hashes)) {
		fmt.Fprintf(h, "%s %s\n", name, r.hashes[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// unreported is the message about an API that a syncer has not reported yet.
const unreported = "the syncer has not reported the API yet"

// statesOf completes the states of the APIs of a cluster that the controller cannot read: APIs that its syncer has not
// reported keep their states.
func (c *controller) statesOf(cl *api.Cluster, negotiated []api.APIStatus) []api.APIStatus {
	out := slices.Clone(negotiated)
	for i, a := range out {
		gr := a.GroupResource()
		if _, ok := c.reports[cl.Name].apis[gr]; ok || a.State == api.APIRemoved {
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

// unreadable returns the condition APIsCompatible of a cluster whose APIs are not known, or are old. It is nil if they
// are known.
func (c *controller) unreadable(cl *api.Cluster, report heartbeat.Report) *metav1.Condition {
	r := c.reports[cl.Name]
	var message string
	switch {
	case r == nil:
		return nil
	case r.problem != nil:
		message = r.problem.Error()
	case report.SchemasProblem != "":
		message = "the syncer cannot report the APIs of the cluster: " + report.SchemasProblem
	default:
		return nil
	}
	return &metav1.Condition{
		Type: api.ConditionAPIsCompatible, Status: metav1.ConditionUnknown, Reason: api.ReasonSchemasUnreadable,
		Message: message[:min(len(message), maxMessage)],
	}
}

// maxMessage is the length of the longest message of a condition, in bytes (metav1.Condition).
const maxMessage = 32768
