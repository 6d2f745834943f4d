package ready

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

const (
	// stuckRestarts is the number of restarts after which a crashing container counts as stuck.
	stuckRestarts = 3
	// crashWindow is how long a restarted container still counts as crashing.
	crashWindow = time.Minute
	// scheduleTimeout is how long a pod may be unschedulable: a volume or a node may be coming up.
	scheduleTimeout = 15 * time.Second
	// probeWindow is how long a failed probe explains why a pod is not ready.
	probeWindow = 30 * time.Second
)

// PodState returns why a pod of the workload does not run, or "", and whether that lasts until something is changed. It
// needs no Object. crash is the container that has ended, if that is why.
func (w *Workload) PodState(p *corev1.Pod, now time.Time) (reason string, stuck bool, crash *Crash) {
	found := w.podProblems(p, now)
	if len(found) == 0 {
		return "", false, nil
	}
	worst := mostTelling(found)
	return worst.String(), worst.stuck, worst.crash
}

// podProblems are the problems of a pod that is not ready.
func (w *Workload) podProblems(p *corev1.Pod, now time.Time) []problem {
	if PodReady(p) {
		return nil
	}
	var out []problem
	if p.Status.Phase == corev1.PodFailed {
		out = append(out, onPod(p, rankEvicted, cmp.Or(p.Status.Reason, "Failed"), p.Status.Message))
	}
	if pr, ok := w.unscheduled(p, now); ok {
		return append(out, pr)
	}
	creating := false
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if pr, ok := containerProblem(p, c, now); ok {
			out = append(out, pr)
		}
		creating = creating || (c.State.Waiting != nil && c.State.Waiting.Reason == "ContainerCreating")
	}
	switch {
	case len(out) > 0:
		return out
	case creating || len(p.Status.ContainerStatuses) == 0:
		return w.startFailure(p)
	}
	return w.probeFailure(p, now)
}

// unscheduled returns why a pod is not scheduled. If it waits for a volume, that is why the volume is not bound.
func (w *Workload) unscheduled(p *corev1.Pod, now time.Time) (problem, bool) {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
	if i < 0 {
		return problem{}, false
	}
	c := p.Status.Conditions[i]
	stuck := now.Sub(c.LastTransitionTime.Time) > scheduleTimeout
	if pr, ok := w.unbound(p); ok && strings.Contains(c.Message, "PersistentVolumeClaim") {
		pr.stuck = stuck
		return pr, true
	}
	// The rest of the scheduler's message is about preemption.
	cause, _, _ := strings.Cut(c.Message, " preemption: ")
	cause, _, _ = strings.Cut(cause, " no new claims to deallocate")
	pr := onPod(p, rankSchedule, cmp.Or(c.Reason, corev1.PodReasonUnschedulable), cause)
	pr.stuck = stuck
	return pr, true
}

// unbound returns the problem of the first claim of a pod that is not bound.
func (w *Workload) unbound(p *corev1.Pod) (problem, bool) {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		name := v.PersistentVolumeClaim.ClaimName
		for _, c := range w.Claims {
			if c.Name != name || c.Status.Phase == corev1.ClaimBound {
				continue
			}
			cause := "waiting for a volume of the cluster's default storage class"
			if class := c.Spec.StorageClassName; class != nil {
				cause = fmt.Sprintf("waiting for a volume of storage class %q", *class)
			}
			if e := w.lastEvent("PersistentVolumeClaim", name, "FailedBinding", "ProvisioningFailed"); e != nil {
				cause = e.Message
			}
			return problem{rank: rankVolume, reason: "PersistentVolumeClaim " + name, cause: oneLine(cause)}, true
		}
	}
	return problem{}, false
}

// containerProblem returns why a container does not run or keeps ending.
func containerProblem(p *corev1.Pod, c corev1.ContainerStatus, now time.Time) (problem, bool) {
	if wait := c.State.Waiting; wait != nil {
		switch wait.Reason {
		case "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
			"RegistryUnavailable",
			"SignatureValidationFailed":
			return imageProblem(p, c, wait), true
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
			"PreStartHookError", "StartError":
			pr := onPod(p, rankConfig, wait.Reason, wait.Message)
			pr.stuck = true
			return pr, true
		}
	}
	last := c.State.Terminated
	previous := false
	if last == nil {
		last = c.LastTerminationState.Terminated
		previous = true
	}
	if last == nil || (c.State.Terminated != nil && last.ExitCode == 0) || c.Ready {
		return problem{}, false
	}
	if r := c.State.Running; r != nil && now.Sub(r.StartedAt.Time) > crashWindow {
		return problem{}, false // it has run for a while: the crash is not why it is not ready
	}
	return crashProblem(p, c, last, previous), true
}

// imageProblem has the image and the last part of the message, which is the registry's. The kubelet alternates between
// two reasons for the same problem.
func imageProblem(p *corev1.Pod, c corev1.ContainerStatus, wait *corev1.ContainerStateWaiting) problem {
	reason := wait.Reason
	if reason == "ErrImagePull" {
		reason = "ImagePullBackOff"
	}
	image := c.Image
	if image == "" || strings.HasPrefix(image, "sha256:") {
		image = containerNamed(p, c.Name).Image
	}
	cause := image
	if i := strings.LastIndex(wait.Message, ": "); i >= 0 {
		cause += ": " + strings.Trim(wait.Message[i+2:], `"`)
	}
	pr := onPod(p, rankImage, reason, cause)
	pr.detail, pr.stuck = oneLine(wait.Message), true
	return pr
}

// crashProblem describes how a container ended, in the same words whether it waits for its restart or runs again.
func crashProblem(
	p *corev1.Pod, c corev1.ContainerStatus, last *corev1.ContainerStateTerminated, previous bool,
) problem {
	reason, cause := "CrashLoopBackOff", fmt.Sprintf("exit code %d", last.ExitCode)
	switch {
	case last.Reason == "OOMKilled":
		reason = "OOMKilled"
		cause = "container " + c.Name + " ran out of memory"
		if limit, ok := containerNamed(p, c.Name).Resources.Limits[corev1.ResourceMemory]; ok {
			cause += " (limit " + limit.String() + ")"
		}
	case last.Reason == "ContainerCannotRun" || last.Reason == "StartError":
		reason = last.Reason
		cause = last.Message
	case c.RestartCount < 2:
		reason = "container " + c.Name + " ended"
	}
	pr := onPod(p, rankCrash, reason, cause)
	pr.stuck = c.RestartCount >= stuckRestarts
	pr.crash = &Crash{Pod: p.Name, Container: c.Name, Restarts: c.RestartCount, Previous: previous}
	return pr
}

// startFailure returns why the containers of a scheduled pod are not created. Only events have the reason.
func (w *Workload) startFailure(p *corev1.Pod) []problem {
	e := w.lastEvent("Pod", p.Name, "FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")
	if e == nil {
		return nil
	}
	pr := onPod(p, rankVolume, e.Reason, e.Message)
	pr.stuck = strings.Contains(e.Message, "not found")
	return []problem{pr}
}

// probeFailure returns the failing probe of a pod that runs and is not ready.
func (w *Workload) probeFailure(p *corev1.Pod, now time.Time) []problem {
	e := w.lastEvent("Pod", p.Name, "Unhealthy")
	if e == nil || now.Sub(seen(e)) > probeWindow {
		return nil
	}
	probe, cause, _ := strings.Cut(e.Message, ": ")
	return []problem{{rank: rankProbe, reason: strings.ToLower(probe), cause: oneLine(cause)}}
}

func onPod(p *corev1.Pod, rank int, reason, cause string) problem {
	return problem{rank: rank, reason: "Pod " + p.Name + ": " + reason, cause: oneLine(cause)}
}

// PodReady reports whether a pod passes its readiness probe and is not being deleted.
func PodReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func restarts(p *corev1.Pod) int32 {
	var n int32
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

func containerNamed(p *corev1.Pod, name string) corev1.Container {
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		if c.Name == name {
			return c
		}
	}
	return corev1.Container{}
}

// version is the version that a pod runs.
func version(p *corev1.Pod) string {
	own := topology.Kind(p.Labels[topology.LabelComponent]).ContainerOf(&p.Spec)
	if own == nil {
		return ""
	}
	return tag(own.Image)
}
