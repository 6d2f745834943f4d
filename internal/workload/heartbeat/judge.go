package heartbeat

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/workload/api"
)

// Judge decides whether clusters are ready. It compares no clocks: a heartbeat is a change of a Lease, at the time when the judge sees
// it. A judge that starts gives every cluster the whole grace period, because it does not know when the last heartbeat was.
type Judge struct {
	clusters map[string]seen
}

// seen is the last heartbeat of a cluster.
type seen struct {
	holder, renewed string
	at              time.Time
	// before reports whether the heartbeat was there when the judge started: it can be old.
	before bool
}

// Verdict is the state of a cluster.
type Verdict struct {
	// Conditions are HeartbeatHealthy, Reachable and Ready, without times.
	Conditions []metav1.Condition
	Report     Report
	// Holder is the process of the syncer, and LastHeartbeat when the judge saw its last heartbeat: zero if it saw none.
	Holder        string
	LastHeartbeat time.Time
	// Next is when the verdict changes unless there is a heartbeat. Zero: it does not.
	Next time.Time
}

// See judges a cluster by its Lease, which is nil if it does not exist.
func (j *Judge) See(cluster string, lease *unstructured.Unstructured, now time.Time) Verdict {
	if j.clusters == nil {
		j.clusters = map[string]seen{}
	}
	last, known := j.clusters[cluster]
	if lease == nil {
		if !known {
			last = seen{at: now}
			j.clusters[cluster] = last
		}
		return missing(last, now)
	}
	holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	if holder == "" {
		holder = last.holder // a syncer that has ended: it has released the Lease. That does not count as a heartbeat
	}
	renewed, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
	if !known || last.holder != holder || last.renewed != renewed {
		last = seen{holder: holder, renewed: renewed, at: now, before: !known}
		j.clusters[cluster] = last
	}
	report, err := ReportOf(lease)
	out := Verdict{Report: report, Holder: holder}
	if !last.before {
		out.LastHeartbeat = last.at
	}
	if age := now.Sub(last.at); age >= Grace {
		out.Conditions = notReady(api.ReasonHeartbeatMissed, fmt.Sprintf(
			"the syncer %s has sent no heartbeat for %s: check that it runs and reaches kcp", holder, Grace))
		return out
	}
	out.Next = last.at.Add(Grace)
	if err != nil {
		out.Conditions = notReady(api.ReasonSyncerNotRunning, err.Error())
		return out
	}
	out.Conditions = alive(report)
	return out
}

// Forget forgets a cluster that is gone.
func (j *Judge) Forget(cluster string) { delete(j.clusters, cluster) }

// missing is the verdict about a cluster without a Lease.
func missing(last seen, now time.Time) Verdict {
	out := Verdict{Conditions: notReady(api.ReasonSyncerNotRunning, "the syncer has sent no heartbeat yet: start it, or see its logs")}
	if now.Sub(last.at) < Grace {
		out.Next = last.at.Add(Grace)
	}
	return out
}

// alive returns the conditions of a cluster whose syncer sends heartbeats.
func alive(r Report) []metav1.Condition {
	heartbeat := metav1.Condition{Type: api.ConditionHeartbeatHealthy, Status: metav1.ConditionTrue, Reason: api.ReasonReady}
	reachable := metav1.Condition{Type: api.ConditionReachable, Status: metav1.ConditionTrue, Reason: api.ReasonReady}
	ready := metav1.Condition{Type: api.ConditionReady, Status: metav1.ConditionTrue, Reason: api.ReasonReady}
	switch {
	case r.Reason != "":
		reachable.Status, reachable.Reason, reachable.Message = metav1.ConditionFalse, r.Reason, r.Message
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, r.Reason, r.Message
	case r.Orphans != "":
		// What is scheduled runs: the cluster is ready, but a person has to look.
		ready.Reason, ready.Message = api.ReasonTooManyOrphans, r.Orphans
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
