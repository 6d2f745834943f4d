package ready

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// crashes is how often a container must have crashed for waiting to be pointless.
	crashes = 3
	// crashMemory is how long a container that was started again counts as crashing.
	crashMemory = time.Minute
	// schedulePatience is how long a pod may be unschedulable: a volume or a node may be on its way.
	schedulePatience = 15 * time.Second
	// probeMemory is how long a failed probe explains why a pod is not ready.
	probeMemory = 30 * time.Second
)

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
		return w.notStarted(p)
	}
	return w.notAnswering(p, now)
}

// unscheduled is why no node takes a pod. Where that is a volume, it says what is wrong with the volume.
func (w *Workload) unscheduled(p *corev1.Pod, now time.Time) (problem, bool) {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
	if i < 0 {
		return problem{}, false
	}
	c := p.Status.Conditions[i]
	stuck := now.Sub(c.LastTransitionTime.Time) > schedulePatience
	if pr, ok := w.unbound(p); ok && strings.Contains(c.Message, "PersistentVolumeClaim") {
		pr.stuck = stuck
		return pr, true
	}
	// The scheduler goes on to say why it did not help to preempt other pods.
	cause, _, _ := strings.Cut(c.Message, " preemption: ")
	cause, _, _ = strings.Cut(cause, " no new claims to deallocate")
	pr := onPod(p, rankSchedule, cmp.Or(c.Reason, corev1.PodReasonUnschedulable), cause)
	pr.stuck = stuck
	return pr, true
}

// unbound is the first volume claim of a pod that has no volume.
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
			cause := "waits for a volume of the cluster's default storage class"
			if class := c.Spec.StorageClassName; class != nil {
				cause = fmt.Sprintf("waits for a volume of storage class %q", *class)
			}
			if e := w.lastEvent("PersistentVolumeClaim", name, "FailedBinding", "ProvisioningFailed"); e != nil {
				cause = e.Message
			}
			return problem{rank: rankVolume, reason: "PersistentVolumeClaim " + name, cause: oneLine(cause)}, true
		}
	}
	return problem{}, false
}

// containerProblem is why a container does not run or stay up.
func containerProblem(p *corev1.Pod, c corev1.ContainerStatus, now time.Time) (problem, bool) {
	if wait := c.State.Waiting; wait != nil {
		switch wait.Reason {
		case "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable",
			"SignatureValidationFailed":
			return imageProblem(p, c, wait), true
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreStartHookError", "StartError":
			pr := onPod(p, rankConfig, wait.Reason, wait.Message)
			pr.stuck = true
			return pr, true
		}
	}
	last, previous := c.State.Terminated, false
	if last == nil {
		last, previous = c.LastTerminationState.Terminated, true
	}
	if last == nil || (c.State.Terminated != nil && last.ExitCode == 0) || c.Ready {
		return problem{}, false
	}
	if r := c.State.Running; r != nil && now.Sub(r.StartedAt.Time) > crashMemory {
		return problem{}, false // it has been up for a while: that is not what keeps it from being ready
	}
	return crashProblem(p, c, last, previous), true
}

// imageProblem names the image and the last part of the reason, which is what the registry said. The two reasons between
// which the kubelet alternates are one.
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

// crashProblem says how a container ended. It sounds the same whether the container waits for its restart or runs again.
func crashProblem(p *corev1.Pod, c corev1.ContainerStatus, last *corev1.ContainerStateTerminated, previous bool) problem {
	reason, cause := "CrashLoopBackOff", fmt.Sprintf("exit code %d", last.ExitCode)
	switch {
	case last.Reason == "OOMKilled":
		reason, cause = "OOMKilled", "container "+c.Name+" needs more memory than it may use"
		if limit, ok := containerNamed(p, c.Name).Resources.Limits[corev1.ResourceMemory]; ok {
			cause += " (" + limit.String() + ")"
		}
	case last.Reason == "ContainerCannotRun" || last.Reason == "StartError":
		reason, cause = last.Reason, last.Message
	case c.RestartCount < 2:
		reason = "container " + c.Name + " ended"
	}
	pr := onPod(p, rankCrash, reason, cause)
	pr.stuck = c.RestartCount >= crashes
	pr.crash = &Crash{Pod: p.Name, Container: c.Name, Restarts: c.RestartCount, Previous: previous}
	return pr
}

// notStarted is why the containers of a scheduled pod are not created: only events say it.
func (w *Workload) notStarted(p *corev1.Pod) []problem {
	e := w.lastEvent("Pod", p.Name, "FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")
	if e == nil {
		return nil
	}
	pr := onPod(p, rankVolume, e.Reason, e.Message)
	pr.stuck = strings.Contains(e.Message, "not found")
	return []problem{pr}
}

// notAnswering is why a running pod is not ready: a probe that fails.
func (w *Workload) notAnswering(p *corev1.Pod, now time.Time) []problem {
	e := w.lastEvent("Pod", p.Name, "Unhealthy")
	if e == nil || now.Sub(seen(e)) > probeMemory {
		return nil
	}
	probe, cause, _ := strings.Cut(e.Message, ": ")
	return []problem{{rank: rankProbe, reason: strings.ToLower(probe), cause: oneLine(cause)}}
}

func onPod(p *corev1.Pod, rank int, reason, cause string) problem {
	return problem{rank: rank, reason: "Pod " + p.Name + ": " + reason, cause: oneLine(cause)}
}

// PodReady tells whether a pod answers its readiness probe and is not on its way out.
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

// mainContainer is the one that kubectl would choose.
func mainContainer(p *corev1.Pod) corev1.Container {
	if name := p.Annotations["kubectl.kubernetes.io/default-container"]; name != "" {
		return containerNamed(p, name)
	}
	if len(p.Spec.Containers) == 0 {
		return corev1.Container{}
	}
	return p.Spec.Containers[0]
}
