package heartbeat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// Judge decides whether clusters are ready. It compares no clocks: a heartbeat is a change of a Lease, at the time when
// the judge gets it. A Lease that was there when the judge started is not a heartbeat: the stored conditions are kept
// until it is renewed, or until it was not renewed for the grace period. If no heartbeat comes in time, the condition
// HeartbeatHealthy becomes Unknown. For a judge that starts after that, the grace period began before the time of the
// condition: restarts do not hide that a cluster is lost. Its methods can be called concurrently.
type Judge struct {
	mu sync.Mutex
	// clusters are by the names of their Leases.
	clusters map[string]*record
}

type record struct {
	uid             types.UID // of the Cluster
	holder, renewed string
	// at is when the last heartbeat came. It is zero if it was there when the judge started.
	at time.Time
	// since is when the grace period began, and missed means that it has passed.
	since  time.Time
	missed bool
	// stored are the conditions when the judge started.
	stored []metav1.Condition
	// lease is the Lease that the report is of.
	lease  *unstructured.Unstructured
	report Report
	err    error
}

// Verdict is the state of a cluster.
type Verdict struct {
	// Conditions are HeartbeatHealthy, Reachable and Ready. Conditions from before the judge started have times, the
	// others do not.
	Conditions []metav1.Condition
	// Report is the last report, and Reported reports whether it could be read.
	Report   Report
	Reported bool
	// Holder is the process of the syncer, and LastHeartbeat when its last heartbeat came: zero if none has.
	Holder        string
	LastHeartbeat time.Time
	// Next is when there is another verdict, unless there is a heartbeat. Zero: there is not.
	Next time.Time
}

// Blind tells that Leases cannot be read: that there was no heartbeat is not known.
func (j *Judge) Blind(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.clusters {
		r.since = now
	}
}

// Forget forgets a cluster that is gone.
func (j *Judge) Forget(cluster string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.clusters, api.LeaseCluster(cluster))
}

// Renew records a Lease that has changed. It reports whether the verdict about the cluster can be another one. It is
// not if the syncer of a cluster that is known has only renewed the Lease, as in nearly all changes, or only reports
// other requests of pods: decisions do not wait for them.
func (j *Judge) Renew(lease *unstructured.Unstructured, now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.clusters[lease.GetName()]
	if r == nil {
		return false // the Lease of something else, or of a Cluster that Evaluate begins with
	}
	known := r.lease != nil && !r.at.IsZero() && !r.expired(now) && r.err == nil
	was := *r
	r.update(lease, now)
	return !known || r.err != nil || r.holder != was.holder ||
		!equality.Semantic.DeepEqual(r.report.withoutRequests(), was.report.withoutRequests())
}

// Evaluate judges a cluster by its Lease, which is nil if it does not exist.
func (j *Judge) Evaluate(cl *api.Cluster, lease *unstructured.Unstructured, now time.Time) Verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.clusters == nil {
		j.clusters = map[string]*record{}
	}
	name := api.LeaseCluster(cl.Name)
	r := j.clusters[name]
	if r == nil || r.uid != cl.UID {
		r = begin(cl, lease, now)
		j.clusters[name] = r
	}
	if lease != nil {
		r.update(lease, now)
	}
	out := r.verdict(now)
	out.Holder = r.holder
	out.LastHeartbeat = r.at
	if r.report.IsFor(cl.UID) {
		out.Report = r.report
		out.Reported = r.lease != nil && r.err == nil
		out.Report.Capacity = capped(r.report.Capacity, cl.Spec.MaxCapacity)
	}
	switch h := meta.FindStatusCondition(out.Conditions, api.ConditionHeartbeatHealthy); {
	case h == nil || h.Status == metav1.ConditionFalse:
	case r.at.IsZero() && h.Status == metav1.ConditionTrue:
		out.Next = r.since.Add(due)
	default:
		out.Next = r.since.Add(Grace)
	}
	return out
}

func begin(cl *api.Cluster, lease *unstructured.Unstructured, now time.Time) *record {
	r := &record{uid: cl.UID, since: now}
	if cl.Status.Syncer != nil {
		r.holder = cl.Status.Syncer.Holder
	}
	if lease != nil {
		r.holder, r.renewed = renewal(lease, r.holder)
	}
	for _, t := range []string{api.ConditionHeartbeatHealthy, api.ConditionReachable, api.ConditionReady} {
		if c := meta.FindStatusCondition(cl.Status.Conditions, t); c != nil {
			r.stored = append(r.stored, *c)
		}
	}
	if c := meta.FindStatusCondition(r.stored, api.ConditionHeartbeatHealthy); c != nil &&
		c.Status == metav1.ConditionUnknown {
		if since := c.LastTransitionTime.Add(-due); since.Before(now) {
			r.since = since
		}
		c.Status = metav1.ConditionTrue
		c.Reason = api.ReasonReady
		c.Message = ""
	}
	if len(r.stored) < 3 {
		r.stored = notReady(api.ReasonSyncerNotRunning,
			"the syncer has sent no heartbeat yet: start it, or see its logs")
	}
	return r
}

// renewal returns the holder of a Lease, and when it was renewed by the clock of the holder. A syncer that has ended
// has released the Lease. That does not count as a heartbeat.
func renewal(lease *unstructured.Unstructured, before string) (holder, renewed string) {
	renewed, _, _ = unstructured.NestedString(lease.Object, "spec", "renewTime")
	if holder = Cut(holderOf(lease)); holder == "" {
		holder = before
	}
	return holder, Cut(renewed)
}

// update takes over a Lease. One that was renewed before the last one is not a heartbeat: a restored backup of kcp has
// it. If the clock of the syncer was set back, the next heartbeat counts.
func (r *record) update(lease *unstructured.Unstructured, now time.Time) {
	if lease == r.lease {
		return
	}
	holder, renewed := renewal(lease, r.holder)
	if (holder != r.holder || renewed != r.renewed) && !before(renewed, r.renewed) {
		r.at = now
		r.since = now
		r.missed = false
	}
	r.holder = holder
	r.renewed = renewed
	if r.lease == nil || r.err != nil || reportText(lease) != reportText(r.lease) {
		r.report, r.err = ReportOf(lease)
	}
	r.lease = lease
}

func before(renewed, other string) bool {
	at, err := time.Parse(time.RFC3339, renewed)
	last, err2 := time.Parse(time.RFC3339, other)
	return err == nil && err2 == nil && at.Before(last)
}

// expired reports whether a heartbeat was missed, and was not followed by another one.
func (r *record) expired(now time.Time) bool {
	r.missed = r.missed || now.Sub(r.since) >= Grace
	return r.missed
}

func (r *record) verdict(now time.Time) Verdict {
	missed := r.expired(now)
	switch healthy := meta.IsStatusConditionTrue(r.stored, api.ConditionHeartbeatHealthy); {
	case r.at.IsZero() && (!missed || !healthy):
		out := slices.Clone(r.stored)
		if healthy && now.Sub(r.since) >= due {
			meta.SetStatusCondition(&out, metav1.Condition{Type: api.ConditionHeartbeatHealthy,
				Status: metav1.ConditionUnknown, Reason: api.ReasonHeartbeatMissed,
				Message: "the syncer has sent no heartbeat since the controller started"})
		}
		return Verdict{Conditions: out}
	case missed:
		return Verdict{Conditions: notReady(api.ReasonHeartbeatMissed, fmt.Sprintf(
			"the syncer %s has sent no heartbeat for %s: check that it runs and reaches kcp", r.holder, Grace))}
	case r.err != nil:
		return Verdict{Conditions: notReady(api.ReasonSyncerNotRunning, r.err.Error())}
	case !r.report.IsFor(r.uid):
		return Verdict{Conditions: notReady(api.ReasonSyncerNotRunning, fmt.Sprintf(
			"the syncer %s works for a removed Cluster of this name: stop it, and start the syncer of this one",
			r.holder))}
	}
	return Verdict{Conditions: alive(r.report)}
}

func alive(r Report) []metav1.Condition {
	is := func(kind string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: api.ReasonReady}
	}
	reachable, ready := is(api.ConditionReachable), is(api.ConditionReady)
	switch {
	case r.Reason != "":
		reachable = api.Not(api.ConditionReachable, r.Reason, r.Message)
		ready = api.Not(api.ConditionReady, r.Reason, r.Message)
	case r.OtherSetup != "":
		ready = api.Not(api.ConditionReady, api.ReasonOtherSetup, r.OtherSetup)
	case r.Orphans != "":
		// What is scheduled runs: the cluster is ready, but a person has to look.
		ready.Reason = api.ReasonOrphans
		ready.Message = r.Orphans
	}
	return []metav1.Condition{is(api.ConditionHeartbeatHealthy), reachable, ready}
}

// notReady returns the conditions of a cluster without heartbeats: whether it can be reached is not known.
func notReady(reason, message string) []metav1.Condition {
	return []metav1.Condition{
		api.Not(api.ConditionHeartbeatHealthy, reason, message),
		{Type: api.ConditionReachable, Status: metav1.ConditionUnknown, Reason: reason, Message: message},
		api.Not(api.ConditionReady, reason, message),
	}
}

// annotationReport is the annotation of a Lease with the Report, as JSON.
const annotationReport = api.Group + "/report"

// Report is the state that a syncer sends with a heartbeat.
type Report struct {
	Mode v1alpha1.SyncMode `json:"mode"`
	// Version is the version of the syncer, and ClusterVersion the version of the API server of the physical cluster.
	Version        string `json:"version,omitempty"`
	ClusterVersion string `json:"clusterVersion,omitempty"`
	// ClusterUID identifies a cluster that the controller cannot read.
	ClusterUID types.UID `json:"clusterUID,omitempty"`
	// Cluster is the UID of the Cluster that the syncer works for: another one can have its name by now. It is empty in
	// reports of earlier versions.
	Cluster types.UID `json:"cluster,omitempty"`
	// Reason and Message are why the syncer does not reach the physical cluster. Empty: it does.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Orphans is the message about objects without an object in kcp. Empty: there are none.
	Orphans string `json:"orphans,omitempty"`
	// OtherSetup is why the syncer does not work: the cluster has the objects of these workspaces under another ID of
	// the setup. Empty: it works.
	OtherSetup string `json:"otherSetup,omitempty"`
	// Capacity are the resources of the cluster. Nil: they are not known.
	Capacity *api.Capacity `json:"capacity,omitempty"`
	// SchemasProblem is why some ConfigMaps with the APIs of a cluster that the controller cannot read are missing or
	// old. Empty: none are.
	SchemasProblem string `json:"schemasProblem,omitempty"`
}

// The limits of a report. A syncer runs in a cluster that others administrate: what it reports becomes part of the
// status of its Cluster, and decides what is scheduled there.
const (
	// maxText is the length of a text, and maxUID the length of a UID.
	maxText, maxUID = 1000, 64
	// maxResources is the number of resources of a capacity.
	maxResources = 64
)

// absurd is more than a cluster can have. Other resources, such as memory in bytes, are limited by largest.
func absurd() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:  resource.MustParse("10M"),
		corev1.ResourcePods: resource.MustParse("10M"), // of 5000 nodes, which is what Kubernetes supports
	}
}

const largest = "1Ei"

// errNoReport means that a Lease was not written by a syncer.
var errNoReport = errors.New("the Lease has no report of a syncer")

func reportText(lease *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(lease.Object, "metadata", "annotations", annotationReport)
	return text
}

// ReportOf returns the report of a Lease, as far as it is credible.
func ReportOf(lease *unstructured.Unstructured) (Report, error) {
	var out Report
	text, ok := lease.GetAnnotations()[annotationReport]
	if !ok {
		return out, errNoReport
	}
	var fields map[string]any
	err := json.Unmarshal([]byte(text), &fields)
	if capacity, ok := fields["capacity"]; ok {
		fields["capacity"] = api.Countable(capacity)
	}
	if err = cmp.Or(err, runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &out)); err != nil {
		return Report{}, fmt.Errorf("report of Lease %s: %s", lease.GetName(), Cut(err.Error()))
	}
	out.confine()
	return out, nil
}

// IsFor reports whether the syncer works for the Cluster with a UID, as far as the report says it.
func (r Report) IsFor(cluster types.UID) bool { return r.Cluster == "" || r.Cluster == cluster }

func (r Report) withoutRequests() Report {
	if r.Capacity != nil {
		capacity := *r.Capacity
		capacity.Requested = nil
		r.Capacity = &capacity
	}
	return r
}

func (r *Report) confine() {
	for _, text := range []*string{
		&r.Version, &r.ClusterVersion, &r.Message, &r.Orphans, &r.OtherSetup, &r.SchemasProblem,
	} {
		*text = Cut(*text)
	}
	if !slices.Contains([]string{"", api.ReasonUnauthorized, api.ReasonUnreachable}, r.Reason) {
		r.Reason = api.ReasonUnreachable
	}
	if !slices.Contains(v1alpha1.SyncModes, r.Mode) {
		r.Mode = ""
	}
	for _, uid := range []*types.UID{&r.ClusterUID, &r.Cluster} {
		if len(*uid) > maxUID {
			*uid = ""
		}
	}
	if r.Capacity != nil {
		r.Capacity = &api.Capacity{Allocatable: credible(r.Capacity.Allocatable),
			Requested: credible(r.Capacity.Requested)}
	}
}

// credible returns the resources that a cluster can have. If there are too many, it returns the first ones by name.
func credible(all corev1.ResourceList) corev1.ResourceList {
	if all == nil {
		return nil
	}
	out, limits := corev1.ResourceList{}, absurd()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		limit, ok := limits[name]
		if !ok {
			limit = resource.MustParse(largest)
		}
		if q := all[name]; q.Sign() >= 0 && q.Cmp(limit) <= 0 && len(name) <= maxText && len(out) < maxResources {
			out[name] = q
		}
	}
	return out
}

// capped returns a capacity whose allocatable resources are not more than the Cluster permits.
func capped(c *api.Capacity, most corev1.ResourceList) *api.Capacity {
	if c == nil || len(most) == 0 {
		return c
	}
	out := &api.Capacity{Allocatable: maps.Clone(c.Allocatable), Requested: c.Requested}
	for name, limit := range most {
		if q, ok := out.Allocatable[name]; ok && q.Cmp(limit) > 0 {
			out.Allocatable[name] = limit
		}
	}
	return out
}

// Cut shortens a text that someone else has written.
func Cut(text string) string { return CutTo(text, maxText) }

// CutTo shortens a text to a number of bytes.
func CutTo(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const more = " ..."
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}
