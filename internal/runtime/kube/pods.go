package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/logs"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/observe"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/portforward"
)

// replaceTimeout is how long it may take until all pods of a component are replaced.
const replaceTimeout = 5 * time.Minute

// labelRevision is the label of a pod of a StatefulSet with the revision of the template that it was created from.
const labelRevision = "controller-revision-hash"

// pods connects to the pods of components, replaces them, and copies their logs.
type pods struct {
	clusters  *clusters
	workloads *observe.Observer
	forwards  portforward.Dialer
	notify    cluster.Notify
}

// Dial connects to the port of a pod of a component, by a port-forward.
func (p *pods) Dial(ctx context.Context, c *topology.Component) (net.Conn, error) {
	cl, err := p.clusters.ofComponent(ctx, c)
	if err != nil {
		return nil, err
	}
	pod, err := p.workloads.RunningPod(ctx, cl, c)
	if err != nil {
		return nil, err
	}
	return p.dialPod(ctx, cl, pod, c.Port)
}

// DialMember connects to the port of a certain pod of a component.
func (p *pods) DialMember(ctx context.Context, c *topology.Component, name string) (net.Conn, error) {
	cl, err := p.clusters.ofComponent(ctx, c)
	if err != nil {
		return nil, err
	}
	all, err := p.workloads.Pods(ctx, cl, c)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(p *corev1.Pod) bool { return p.Name == name && observe.Running(p) })
	if i < 0 {
		return nil, clierr.New(clierr.Failed, "find the reason with: kcpctl status",
			"Pod/%s/%s is not running", cl.Namespace, name)
	}
	return p.dialPod(ctx, cl, all[i], c.Port)
}

func (p *pods) dialPod(ctx context.Context, cl *cluster.Client, pod *corev1.Pod, port int32) (net.Conn, error) {
	u, err := cl.URL(cl.PodPath(pod.Name, "portforward"), nil)
	if err != nil {
		return nil, err
	}
	conn, err := p.forwards.Dial(ctx, portforward.Pod{UID: pod.UID, Name: pod.Name, URL: u, Config: cl.Config}, port)
	if err != nil {
		return nil, cl.Explain(err, "connect to port %d of Pod/%s/%s", port, cl.Namespace, pod.Name)
	}
	return conn, nil
}

// Replace replaces the pods of a component one after another: it deletes those that are not ready, and then each of the
// others when all but this one are ready.
func (p *pods) Replace(ctx context.Context, c *topology.Component) error {
	ctx, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	cl, err := p.clusters.ofComponent(ctx, c)
	if err != nil {
		return err
	}
	all, err := p.workloads.Pods(ctx, cl, c)
	if err != nil {
		return err
	}
	replicas := c.Replicas
	if c.Autoscaled {
		s, err := p.workloads.State(ctx, cl, c)
		if err != nil {
			return err
		}
		replicas = s.Replicas
	}
	slices.SortStableFunc(all, func(a, b *corev1.Pod) int { return readyLast(a) - readyLast(b) })
	gone := map[types.UID]bool{}
	for _, pod := range all {
		if pod.DeletionTimestamp != nil {
			continue
		}
		gone[pod.UID] = true
		if ready.PodReady(pod) {
			if err := p.waitReplaced(ctx, cl, c, replicas-1, gone); err != nil {
				return err
			}
		}
		if err := deletePod(ctx, cl, pod); err != nil {
			return err
		}
	}
	return p.waitReplaced(ctx, cl, c, replicas, gone)
}

func readyLast(p *corev1.Pod) int {
	if ready.PodReady(p) {
		return 1
	}
	return 0
}

// ReplaceOutdated deletes all pods of a StatefulSet at once that are not of its current revision. Its controller then
// creates them from the current template.
func (p *pods) ReplaceOutdated(ctx context.Context, c *topology.Component) error {
	ctx, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	cl, err := p.clusters.ofComponent(ctx, c)
	if err != nil {
		return err
	}
	revision, err := awaitRevision(ctx, cl, c.Object())
	if err != nil {
		return err
	}
	all, err := cl.Pods(ctx, labels.SelectorFromSet(c.Selector()).String())
	if err != nil {
		return err
	}
	for _, pod := range all {
		if pod.DeletionTimestamp != nil || pod.Labels[labelRevision] == revision {
			continue
		}
		if err := deletePod(ctx, cl, pod); err != nil {
			return err
		}
	}
	return nil
}

// awaitRevision returns the current revision of a StatefulSet as soon as its controller has seen the last change: until
// then, it would create pods from the previous template.
func awaitRevision(ctx context.Context, cl *cluster.Client, name string) (revision string, err error) {
	return revision, cl.WaitFor(ctx, func() (string, error) {
		o, err := cl.Get(ctx, kind.StatefulSet, name)
		if err != nil || o == nil {
			return "StatefulSet/" + name, err
		}
		observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		revision, _, _ = unstructured.NestedString(o.Object, "status", "updateRevision")
		if observed < o.GetGeneration() || revision == "" {
			return fmt.Sprintf("the controller of StatefulSet/%s to see its change", name), nil
		}
		return "", nil
	})
}

// waitReplaced waits until some pods of a component are ready, besides those that were deleted, or are about to be.
func (p *pods) waitReplaced(
	ctx context.Context, cl *cluster.Client, c *topology.Component, replicas int32, deleted map[types.UID]bool,
) error {
	return cl.WaitFor(ctx, func() (missing string, err error) {
		all, err := p.workloads.Pods(ctx, cl, c)
		if err != nil {
			return "", err
		}
		isReady := int32(0)
		for _, pod := range all {
			if !deleted[pod.UID] && pod.DeletionTimestamp == nil && ready.PodReady(pod) {
				isReady++
			}
		}
		if isReady < replicas {
			return fmt.Sprintf("%d of %d pods of %s to be ready", replicas-isReady, replicas, c.ID()), nil
		}
		return "", nil
	})
}

// deletePod deletes a pod, unless it is gone or another one has its name.
func deletePod(ctx context.Context, cl *cluster.Client, p metav1.Object) error {
	uid := p.GetUID()
	err := cl.Resource(kind.Pods).Delete(ctx, p.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return cl.Explain(err, "delete Pod/%s/%s", cl.Namespace, p.GetName())
	}
	return nil
}

// Logs copies the logs of all containers of a component's pods. If there are several, each line begins with its source,
// as with kubectl logs --prefix. With Follow it continues until ctx ends, also with containers that start later.
func (p *pods) Logs(ctx context.Context, c *topology.Component, from run.LogOptions, w io.Writer) error {
	o := logs.Options{
		Previous: from.Previous, Tail: from.Tail, Since: from.Since, SinceTime: from.SinceTime,
		Timestamps: from.Timestamps,
	}
	cl, err := p.clusters.ofComponent(ctx, c)
	if err != nil {
		return err
	}
	all, err := cl.Pods(ctx, labels.SelectorFromSet(c.Selector()).String())
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return clierr.New(clierr.Failed, "find the reason with: kcpctl status",
			"%s has no pods (%s)", c.ID(), cl.Where())
	}
	if !from.Follow || o.Previous {
		err := logs.Copy(ctx, cl, all, o, w)
		if errors.Is(err, logs.ErrNoPrevious) {
			err = clierr.New(clierr.Failed, "omit --previous", "%s: %w", c.ID(), run.ErrNoPrevious)
		}
		return err
	}
	now, err := p.workloads.WatchPods(ctx, cl, c)
	if err != nil {
		return err
	}
	return logs.Follow(ctx, cl, now, o, w, p.notify)
}
