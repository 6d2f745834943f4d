package kube

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/etcd/transfer"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/observe"
)

const (
	// restorerStart is how long a pod may take to start: its image may have to be pulled, and its volume created.
	restorerStart = 10 * time.Minute
	// restorerPatience is how long a pod may have a problem that lasts until something is changed.
	restorerPatience = 30 * time.Second
	// volumeTimeout is how long a volume may be used by another pod, or a claim be deleted.
	volumeTimeout = 5 * time.Minute
	// restorerRemoval is how long the removal of a pod may take after a failure.
	restorerRemoval = 10 * time.Second
)

// limited returns a context for the wait for a volume.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, volumeTimeout, fmt.Errorf("not within %s", volumeTimeout))
}

// restorerPods runs pods that have the volumes of components.
type restorerPods struct {
	setup     string
	workloads *observe.Observer
	now       func() time.Time
	// image is the image of kcpctl.
	image v1alpha1.Image
	dial  func(ctx context.Context, cl *cluster.Client, pod *corev1.Pod, port int32) (net.Conn, error)
}

// volume is a volume with its pod, and the function that uses it there.
type volume struct {
	restorer render.Restorer
	client   transfer.Client
	do       func(context.Context, *transfer.Client, transfer.Progress) (string, error)
	// aside is where previous data is.
	aside string
}

// run starts the pods of some volumes, calls the functions of the volumes, and deletes the pods. All run at the same
// time, so that the scheduler spreads new volumes as it spreads the pods of the component.
func (r *restorerPods) run(ctx context.Context, cl *cluster.Client, all []*volume, p *progress) (err error) {
	pods := make([]*corev1.Pod, len(all))
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restorerRemoval)
			defer cancel()
			_ = r.removeAll(ctx, cl, pods) // the next restore removes them otherwise
		}
	}()
	indices := parallel.Indices(all)
	err = parallel.Each(ctx, indices, func(ctx context.Context, i int) (err error) {
		pods[i], err = r.start(ctx, cl, &all[i].restorer, p.wait)
		return err
	})
	if err != nil {
		return err
	}
	err = parallel.Each(ctx, indices, func(ctx context.Context, i int) (err error) {
		v := all[i]
		v.client.Dial = func(ctx context.Context) (net.Conn, error) { return r.dial(ctx, cl, pods[i], transfer.Port) }
		v.aside, err = v.do(ctx, &v.client, func(done, total int64) { p.add(i, done, total) })
		return err
	})
	if err != nil {
		return err
	}
	ctx, cancel := limited(ctx)
	defer cancel()
	return r.removeAll(ctx, cl, pods)
}

// start starts the pod of a volume, and waits until it runs.
func (r *restorerPods) start(
	ctx context.Context, cl *cluster.Client, of *render.Restorer, report func(string),
) (*corev1.Pod, error) {
	pod, err := of.Pod()
	if err != nil {
		return nil, err
	}
	if err := r.replace(ctx, cl, pod.Name); err != nil {
		return nil, err
	}
	if err := r.awaitUnused(ctx, cl, of.Claim, report); err != nil {
		return nil, err
	}
	created := &corev1.Pod{}
	if err := cl.Write(ctx, kind.Pods, pod, created); err != nil {
		return nil, cl.Explain(err, "create %s", podRef(pod))
	}
	return created, r.awaitRunning(ctx, cl, created, of.Claim, report)
}

func podRef(p *corev1.Pod) string { return fmt.Sprintf("Pod/%s/%s", p.Namespace, p.Name) }

// replace deletes the pod of an interrupted restore. It refuses a pod that is not one.
func (r *restorerPods) replace(ctx context.Context, cl *cluster.Client, name string) error {
	o, err := cl.Get(ctx, kind.Pod, name)
	if o == nil || err != nil {
		return err
	}
	labels := o.GetLabels()
	if labels[topology.LabelPurpose] != topology.PurposeRestore || labels[topology.LabelSetup] != r.setup {
		return clierr.New(clierr.Failed, "delete it, if it is not needed, and rerun the command",
			"Pod/%s/%s (%s) exists, and kcpctl has not created it", cl.Namespace, name, cl.Where())
	}
	ctx, cancel := limited(ctx)
	defer cancel()
	return removePod(ctx, cl, o)
}

// removePod deletes a pod by its UID, and waits until it is gone: two pods must not write to one volume.
func removePod(ctx context.Context, cl *cluster.Client, o *unstructured.Unstructured) error {
	if err := deletePod(ctx, cl, o); err != nil {
		return err
	}
	return cl.WaitGone(ctx, kind.Pod, o)
}

// removeAll deletes pods.
func (r *restorerPods) removeAll(ctx context.Context, cl *cluster.Client, pods []*corev1.Pod) error {
	exist := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p == nil })
	return parallel.Each(ctx, exist, func(ctx context.Context, p *corev1.Pod) error {
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		if err != nil {
			return err
		}
		u := &unstructured.Unstructured{Object: o}
		u.SetGroupVersionKind(kind.Pod.GroupVersionKind)
		return removePod(ctx, cl, u)
	})
}

// removeRestorers deletes the pods that an interrupted restore has left, with the labels of a selector: their volumes
// cannot be deleted before.
func removeRestorers(ctx context.Context, cl *cluster.Client, selector string) error {
	all, err := cl.List(ctx, kind.Pod, selector+","+topology.LabelPurpose+"="+topology.PurposeRestore)
	if err != nil {
		return err
	}
	return parallel.Each(ctx, parallel.Indices(all), func(ctx context.Context, i int) error {
		return removePod(ctx, cl, &all[i])
	})
}

// awaitUnused waits until no pod uses a claim: what writes to the volume would write into the restored data.
func (r *restorerPods) awaitUnused(ctx context.Context, cl *cluster.Client, claim string, report func(string)) error {
	ctx, cancel := limited(ctx)
	defer cancel()
	return cl.WaitFor(ctx, func() (string, error) {
		all, err := cl.Pods(ctx, "")
		if err != nil {
			return "", err
		}
		i := slices.IndexFunc(all, func(p *corev1.Pod) bool { return uses(p, claim) })
		if i < 0 {
			return "", nil
		}
		missing := fmt.Sprintf("%s to be gone, which uses PersistentVolumeClaim/%s/%s", podRef(all[i]), cl.Namespace,
			claim)
		report("waiting for " + missing)
		return missing, nil
	})
}

// uses reports whether a pod that has not ended uses a claim.
func uses(p *corev1.Pod, claim string) bool {
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	return !ended && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// awaitRunning waits until a pod runs. It fails as soon as it is known why it does not.
func (r *restorerPods) awaitRunning(
	ctx context.Context, cl *cluster.Client, pod *corev1.Pod, claim string, report func(string),
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, restorerStart, fmt.Errorf("not within %s", restorerStart))
	defer cancel()
	var stuckSince time.Time
	return cl.WaitFor(ctx, func() (string, error) {
		s, err := r.workloads.PodState(ctx, cl, pod.Name, claim)
		if err != nil {
			return "", err
		}
		switch {
		case s.Gone:
			return "", r.notStarted(cl, pod, "it was deleted")
		case s.Phase == corev1.PodRunning && s.Reason == "":
			return "", nil
		case s.Phase == corev1.PodFailed, s.Phase == corev1.PodSucceeded:
			return "", r.ended(cl, pod, s)
		case !s.Stuck:
			stuckSince = time.Time{}
		case stuckSince.IsZero():
			stuckSince = r.now()
		case r.now().Sub(stuckSince) > restorerPatience:
			return "", r.notStarted(cl, pod, s.Reason)
		}
		missing := podRef(pod) + " to run"
		if s.Reason != "" {
			missing += ": " + s.Reason
		}
		report("waiting for " + missing)
		return missing, nil
	})
}

// notStarted is the error for a pod that does not start.
func (r *restorerPods) notStarted(cl *cluster.Client, pod *corev1.Pod, reason string) error {
	return clierr.New(clierr.Failed,
		"correct the cause, and rerun the command; another image of kcpctl is chosen with --image",
		"%s (%s), which writes the data, does not start: %s", podRef(pod), cl.Where(), reason)
}

// ended is the error for a pod that has ended before it got the data.
func (r *restorerPods) ended(cl *cluster.Client, pod *corev1.Pod, s observe.PodState) error {
	reason := s.Reason
	if len(s.Log) > 0 {
		reason += ": " + s.Log[len(s.Log)-1]
	}
	return r.notStarted(cl, pod, strings.TrimPrefix(reason, ": "))
}

// admitted refuses volumes whose pods the cluster does not admit, by a dry run. A quota does not count: the pods of the
// component do not run meanwhile.
func (r *restorerPods) admitted(ctx context.Context, cl *cluster.Client, v *render.Volumes) error {
	pod, err := render.Restorer{Volumes: v, Image: r.image, Claim: v.Claims[0].GetName()}.Pod()
	if err != nil {
		return err
	}
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return err
	}
	_, err = cl.Resource(kind.Pods).Create(ctx, &unstructured.Unstructured{Object: o},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), cluster.IsDenied(err),
		apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return clierr.New(clierr.Failed, "see podTemplate in the setup file, and the policies of the namespace",
			"the cluster does not admit %s (%s), which would write the data of %s: %w", podRef(pod), cl.Where(),
			v.Component.ID(), err)
	}
	return cl.Explain(err, "create %s (dry run)", podRef(pod))
}

// progress adds up the progress of several volumes. Its calls do not overlap.
type progress struct {
	data run.Restored
	mu   sync.Mutex
	done []int64
	last string
}

func newProgress(data run.Restored, volumes int) *progress {
	return &progress{data: data, done: make([]int64, volumes)}
}

// wait reports what a volume waits for, if it was not reported last.
func (p *progress) wait(message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if message != p.last {
		p.last = message
		p.data.Report(message)
	}
}

// add reports the progress of a volume. All have the same number of bytes.
func (p *progress) add(i int, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[i] = done
	sum := int64(0)
	for _, d := range p.done {
		sum += d
	}
	p.data.Progress(sum, total*int64(len(p.done)))
}
