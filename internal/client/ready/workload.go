package ready

import (
	"fmt"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// eventDelay is how old a pod or a workload must be before its events are fetched: many become ready before.
const eventDelay = 2 * time.Second

// Workload is a component's Deployment or StatefulSet and what Kubernetes derived from it.
type Workload struct {
	// Object is the Deployment or StatefulSet, or nil if it does not exist.
	Object *unstructured.Unstructured
	// Wanted is the number of replicas in the setup. Autoscaled means that the setup leaves it to others.
	Wanted     int32
	Autoscaled bool
	// ReplicaSets are the ReplicaSets of all revisions of a Deployment.
	ReplicaSets []*unstructured.Unstructured
	Pods        []*corev1.Pod
	Claims      []*corev1.PersistentVolumeClaim
	// Events are the warning events about all of these.
	Events []*corev1.Event
}

// State returns the state of the workload, and the crash of a container if that is the reason.
func (w *Workload) State(now time.Time) (State, *Crash) {
	if w.Object == nil {
		return State{Reason: "does not exist"}, nil
	}
	s := State{Replicas: int32(w.number(1, "spec", "replicas")), Pods: map[string]bool{}}
	for _, p := range w.Pods {
		if p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			s.Pods[p.Name] = p.DeletionTimestamp == nil
		}
	}
	pods := w.current()
	for _, p := range pods {
		s.Restarts += restarts(p)
		if PodReady(p) {
			s.ReadyReplicas++
		}
		if t := p.Status.StartTime; t != nil && (s.Since.IsZero() || t.Time.Before(s.Since)) {
			s.Since = t.Time
		}
		if s.Version == "" {
			s.Version = version(p)
		}
	}
	halted, next := w.halted(s.Replicas)
	result, err := status.Compute(w.Object)
	switch {
	case err != nil:
		s.Reason = err.Error()
		return s, nil
	case result.Status == status.TerminatingStatus:
		s.Reason = "is being deleted"
		return s, nil
	case s.Replicas == 0 && w.Wanted > 0:
		w.stopped(&s)
		return s, nil
	case result.Status == status.CurrentStatus && w.available() >= int64(s.Replicas) && halted == "":
		s.Ready = true
		s.ReadyReplicas = s.Replicas
		return s, nil
	}
	p := w.worst(pods, now)
	s.Reason, s.Stuck = w.explain(s, p), p.stuck
	if halted != "" && p.rank == rankNone {
		s.Stuck = true
		s.Reason = halted
		s.Next = next
	}
	if p.detail != "" {
		s.Detail = []string{p.detail}
	}
	return s, p.crash
}

// stopped sets the state of a workload that others have scaled to 0: it is complete, and does not serve.
func (w *Workload) stopped(s *State) {
	what := fmt.Sprintf("%s %s", w.Object.GetKind(), w.Object.GetName())
	s.Stuck = true
	if w.Autoscaled {
		s.Reason = what + " was scaled to 0 replicas, not by kcpctl"
		s.Next = fmt.Sprintf("kubectl scale %s/%s --replicas=1 -n %s", strings.ToLower(w.Object.GetKind()),
			w.Object.GetName(), w.Object.GetNamespace())
		return
	}
	s.Reason = fmt.Sprintf("0 of %d replicas: %s was scaled to 0, not by kcpctl", w.Wanted, what)
	s.Next = "kcpctl up"
}

// halted returns why others have stopped the rollout before all pods are updated, and the command that continues it.
// For Kubernetes, such a StatefulSet is complete. Without such a reason, it returns nothing.
func (w *Workload) halted(replicas int32) (why, next string) {
	updated := w.number(0, "status", "updatedReplicas")
	if updated >= int64(replicas) || w.number(0, "status", "observedGeneration") < w.Object.GetGeneration() {
		return "", ""
	}
	name, namespace := w.Object.GetName(), w.Object.GetNamespace()
	continues := fmt.Sprintf(`kubectl patch statefulset/%s -n %s --type=merge -p `+
		`'{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0}}}}'`, name, namespace)
	paused, _, _ := unstructured.NestedBool(w.Object.Object, "spec", "paused")
	strategy, _, _ := unstructured.NestedString(w.Object.Object, "spec", "updateStrategy", "type")
	partition := w.number(0, "spec", "updateStrategy", "rollingUpdate", "partition")
	switch {
	case paused:
		why = "its rollout is paused"
		continues = fmt.Sprintf("kubectl rollout resume deployment/%s -n %s", name, namespace)
	case strategy == "OnDelete":
		why = "its updateStrategy is OnDelete"
	case partition > 0 && updated >= int64(replicas)-partition:
		why = fmt.Sprintf("its updateStrategy has the partition %d", partition)
	default:
		return "", ""
	}
	return fmt.Sprintf("%d/%d updated: %s, not by kcpctl", updated, replicas, why), continues
}

// explain returns the progress of the rollout, or what blocks it.
func (w *Workload) explain(s State, p problem) string {
	switch {
	case p.rank == rankNone:
		return w.progress(s)
	case p.rank == rankProbe:
		return w.progress(s) + ": " + p.String()
	}
	return p.String()
}

// WantsEvents reports whether warning events may explain why the workload is not ready. Events are numerous, so they
// are fetched only when needed.
func (w *Workload) WantsEvents(now time.Time) bool {
	if w.Object == nil {
		return false
	}
	isNew := func(t time.Time) bool { return now.Sub(t) < eventDelay }
	for _, p := range w.Pods {
		if !PodReady(p) && !isNew(p.CreationTimestamp.Time) {
			return true
		}
	}
	return int64(len(w.Pods)) < w.number(1, "spec", "replicas") && !isNew(w.Object.GetCreationTimestamp().Time)
}

// progress describes the state of a rollout.
func (w *Workload) progress(s State) string {
	n := s.Replicas
	updated := int32(w.number(0, "status", "updatedReplicas"))
	all := int32(w.number(0, "status", "replicas"))
	switch {
	case w.number(0, "status", "observedGeneration") < w.Object.GetGeneration():
		return RolloutNotStarted
	case updated < n && all > 0:
		return fmt.Sprintf("%d/%d updated", updated, n)
	case s.ReadyReplicas < n:
		return fmt.Sprintf("%d/%d ready", s.ReadyReplicas, n)
	case all > updated:
		return fmt.Sprintf("%d of a previous revision remaining", all-updated)
	}
	return fmt.Sprintf("%d/%d available", w.available(), n)
}

// available is the number of replicas that have been ready for long enough.
func (w *Workload) available() int64 { return w.number(0, "status", "availableReplicas") }

func (w *Workload) number(def int64, path ...string) int64 {
	n, ok, err := unstructured.NestedInt64(w.Object.Object, path...)
	if err != nil || !ok {
		return def
	}
	return n
}

// current are the pods of the newest revision that are not being deleted.
func (w *Workload) current() []*corev1.Pod {
	label, value := w.revision()
	var out []*corev1.Pod
	for _, p := range w.Pods {
		if p.DeletionTimestamp == nil && value != "" && p.Labels[label] == value {
			out = append(out, p)
		}
	}
	return out
}

// revision returns the label of the pods of the newest revision, and its value: empty until its controller has seen the
// revision.
func (w *Workload) revision() (label, value string) {
	if w.number(0, "status", "observedGeneration") < w.Object.GetGeneration() {
		return "", ""
	}
	if w.Object.GetKind() == "StatefulSet" {
		value, _, _ = unstructured.NestedString(w.Object.Object, "status", "updateRevision")
		return "controller-revision-hash", value
	}
	const annotation, hash = "deployment.kubernetes.io/revision", "pod-template-hash"
	for _, rs := range w.ReplicaSets {
		if r := rs.GetAnnotations()[annotation]; r != "" && r == w.Object.GetAnnotations()[annotation] {
			return hash, rs.GetLabels()[hash]
		}
	}
	return hash, ""
}

// tag returns the tag of an image, or its shortened digest.
func tag(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		return name[i+1:]
	}
	return digest[:min(len(digest), len("sha256:")+12)]
}
