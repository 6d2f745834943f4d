package heartbeat

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

const (
	// late is when a heartbeat is late: the status of the Cluster then has for how long.
	late = Interval + timeout
	// writeInterval is the time between two of these writes: a judge that starts loses not more than this.
	writeInterval = 5 * time.Second
)

// Judge decides whether clusters are ready. It compares no clocks: a heartbeat is a change of a Lease, at the time when
// the judge sees it. A Lease that was there when the judge started is not a heartbeat: the conditions are kept, and the
// grace period continues from the value in the status of the Cluster.
type Judge struct {
	clusters map[string]*seen
}

// seen is the last heartbeat of a cluster.
type seen struct {
	uid             types.UID // of the Cluster
	holder, renewed string
	// at is when it was seen. It is zero if it was there when the judge started.
	at time.Time
	// silent is for how long it has been the last one, at the time looked.
	silent time.Duration
	looked time.Time
	// before are the conditions when the judge started.
	before []metav1.Condition
	report Report
	err    error
}

// Verdict is the state of a cluster.
type Verdict struct {
	// Conditions are HeartbeatHealthy, Reachable and Ready. Conditions from before the judge started have times, the
	// others do not.
	Conditions []metav1.Condition
	Report     Report
	// Holder is the process of the syncer, and LastHeartbeat when the judge saw its last heartbeat: zero if it saw
	// none.
	Holder        string
	LastHeartbeat time.Time
	// Silence is to be written to the status of the Cluster. Nil: nothing is.
	Silence *api.Silence
	// Next is when there is another verdict, or something to write, unless there is a heartbeat. Zero: there is not.
	Next time.Time
}

// Blind tells that Leases could not be read since the last look: that there was no heartbeat is not known.
func (j *Judge) Blind(now time.Time) {
	for _, s := range j.clusters {
		s.looked = now
	}
}

// Forget forgets a cluster that is gone.
func (j *Judge) Forget(cluster string) { delete(j.clusters, cluster) }

// See judges a cluster by its Lease, which is nil if it does not exist.
func (j *Judge) See(cl *api.Cluster, lease *unstructured.Unstructured, now time.Time) Verdict {
	if j.clusters == nil {
		j.clusters = map[string]*seen{}
	}
	last := j.clusters[cl.Name]
	if last == nil || last.uid != cl.UID {
		last = begin(cl, lease, now)
		j.clusters[cl.Name] = last
	}
	last.silent += now.Sub(last.looked)
	last.looked = now
	if lease != nil {
		last.look(lease, now)
	}
	out := last.verdict()
	out.Holder = last.holder
	out.LastHeartbeat = last.at
	out.Report = last.report
	out.Report.Capacity = capped(last.report.Capacity, cl.Spec.MaxCapacity)
	if meta.IsStatusConditionTrue(out.Conditions, api.ConditionHeartbeatHealthy) {
		out.Silence = last.silence(cl.Status.Silence)
		out.Next = now.Add(last.untilNext())
	}
	return out
}

// begin returns what is known of a cluster that the judge has not seen yet.
func begin(cl *api.Cluster, lease *unstructured.Unstructured, now time.Time) *seen {
	s := &seen{uid: cl.UID, looked: now}
	if cl.Status.Syncer != nil {
		s.holder = cl.Status.Syncer.Holder
	}
	stored := cl.Status.Silence
	switch {
	case lease != nil:
		s.holder, s.renewed = of(lease, s.holder)
	case stored != nil:
		s.renewed = stored.RenewTime
	}
	if stored != nil && stored.RenewTime == s.renewed {
		s.silent = time.Duration(stored.Seconds) * time.Second
	}
	for _, t := range []string{api.ConditionHeartbeatHealthy, api.ConditionReachable, api.ConditionReady} {
		if c := meta.FindStatusCondition(cl.Status.Conditions, t); c != nil {
			s.before = append(s.before, *c)
		}
	}
	if len(s.before) < 3 {
		s.before = notReady(api.ReasonSyncerNotRunning,
			"the syncer has sent no heartbeat yet: start it, or see its logs")
	}
	return s
}

// of returns the holder of a Lease, and when it was renewed by the clock of the holder. A syncer that has ended has
// released the Lease. That does not count as a heartbeat.
func of(lease *unstructured.Unstructured, before string) (holder, renewed string) {
	renewed, _, _ = unstructured.NestedString(lease.Object, "spec", "renewTime")
	if holder = Cut(holderOf(lease)); holder == "" {
		holder = before
	}
	return holder, Cut(renewed)
}

// look looks at the Lease. One that was renewed before the last one is not a heartbeat: a restored backup of kcp has
// it. If the clock of the syncer was set back, the next heartbeat counts.
func (s *seen) look(lease *unstructured.Unstructured, now time.Time) {
	holder, renewed := of(lease, s.holder)
	if (holder != s.holder || renewed != s.renewed) && !before(renewed, s.renewed) {
		s.at = now
		s.silent = 0
	}
	s.holder = holder
	s.renewed = renewed
	s.report, s.err = ReportOf(lease)
}

// before reports whether a Lease was renewed before another one.
func before(renewed, other string) bool {
	at, err := time.Parse(time.RFC3339, renewed)
	last, err2 := time.Parse(time.RFC3339, other)
	return err == nil && err2 == nil && at.Before(last)
}

// verdict returns the conditions.
func (s *seen) verdict() Verdict {
	missed := s.silent >= Grace
	switch {
	case s.at.IsZero() && (!missed || !meta.IsStatusConditionTrue(s.before, api.ConditionHeartbeatHealthy)):
		return Verdict{Conditions: slices.Clone(s.before)}
	case missed:
		return Verdict{Conditions: notReady(api.ReasonHeartbeatMissed, fmt.Sprintf(
			"the syncer %s has sent no heartbeat for %s: check that it runs and reaches kcp", s.holder, Grace))}
	case s.err != nil:
		return Verdict{Conditions: notReady(api.ReasonSyncerNotRunning, s.err.Error())}
	}
	return Verdict{Conditions: alive(s.report)}
}

// silence returns what the status of the Cluster needs for a judge that starts, or nil.
func (s *seen) silence(stored *api.Silence) *api.Silence {
	next := &api.Silence{RenewTime: s.renewed, Seconds: int64(s.silent / time.Second)}
	if s.silent < late || stored != nil && stored.RenewTime == next.RenewTime &&
		next.Seconds-stored.Seconds < int64(writeInterval/time.Second) {
		return nil
	}
	return next
}

// untilNext returns the time until the next verdict, or until there is something to write.
func (s *seen) untilNext() time.Duration {
	if s.silent < late {
		return late - s.silent
	}
	return min(Grace-s.silent, writeInterval)
}

// alive returns the conditions of a cluster whose syncer sends heartbeats.
func alive(r Report) []metav1.Condition {
	heartbeat := metav1.Condition{Type: api.ConditionHeartbeatHealthy, Status: metav1.ConditionTrue,
		Reason: api.ReasonReady}
	reachable := metav1.Condition{Type: api.ConditionReachable, Status: metav1.ConditionTrue, Reason: api.ReasonReady}
	ready := metav1.Condition{Type: api.ConditionReady, Status: metav1.ConditionTrue, Reason: api.ReasonReady}
	switch {
	case r.Reason != "":
		reachable.Status = metav1.ConditionFalse
		reachable.Reason = r.Reason
		reachable.Message = r.Message
		ready.Status = metav1.ConditionFalse
		ready.Reason = r.Reason
		ready.Message = r.Message
	case r.OtherSetup != "":
		ready.Status = metav1.ConditionFalse
		ready.Reason = api.ReasonOtherSetup
		ready.Message = r.OtherSetup
	case r.Orphans != "":
		// What is scheduled runs: the cluster is ready, but a person has to look.
		ready.Reason = api.ReasonOrphans
		ready.Message = r.Orphans
	}
	return []metav1.Condition{heartbeat, reachable, ready}
}

// notReady returns the conditions of a cluster without heartbeats: whether it can be reached is not known.
func notReady(reason, message string) []metav1.Condition {
	return []metav1.Condition{
		{Type: api.ConditionHeartbeatHealthy, Status: metav1.ConditionFalse, Reason: reason, Message: message},
		{Type: api.ConditionReachable, Status: metav1.ConditionUnknown, Reason: reason, Message: message},
		{Type: api.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message},
	}
}
