// Package observe watches what components run on: Deployments, StatefulSets and what Kubernetes derives
// from them.
package observe

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// shownLogLines is how many lines of a crashed container's log are shown.
const shownLogLines = 10

// Observer observes the workloads of a setup.
type Observer struct {
	// selector selects the objects of the setup.
	selector string
	now      func() time.Time
	// background is the context of the watches, which outlive the calls that start them.
	background context.Context
	applied    applied

	mu       sync.Mutex
	clusters map[*cluster.Client]*clusterWatch
}

// clusterWatch has the informers and the logs of one cluster.
type clusterWatch struct {
	informers informers
	logs      crashLogs
}

// New returns an observer of the objects of a setup that a label selector selects. Its watches end with background.
func New(background context.Context, selector string, now func() time.Time) *Observer {
	return &Observer{
		selector: selector, now: now, background: background, clusters: map[*cluster.Client]*clusterWatch{},
	}
}

// Applied notes an object that this run has applied, so that an older state in a watch does not count as ready.
func (o *Observer) Applied(ref plan.Ref, live *unstructured.Unstructured) { o.applied.add(ref, live) }

// State returns the state of a component.
func (o *Observer) State(ctx context.Context, cl *cluster.Client, c *topology.Component) (ready.State, error) {
	w, err := o.workload(ctx, cl, c)
	if err != nil {
		return ready.State{}, err
	}
	now := o.now()
	if w.Object != nil && o.applied.outdated(plan.RefOf(cl.Name, w.Object), w.Object) {
		return ready.State{Replicas: c.Replicas, Reason: ready.RolloutNotStarted}, nil
	}
	if w.WantsEvents(now) {
		w.Events = o.warnings(cl, w)
	}
	state, crash := w.State(now)
	if w.Object == nil {
		state.Replicas = c.Replicas
	}
	if crash != nil {
		lines := o.of(cl).logs.lastLines(ctx, cl, *crash)
		state.Next = crash.Next(lines)
		state.Detail = append(state.Detail, lines[max(0, len(lines)-shownLogLines):]...)
	}
	return state, nil
}

// Pods returns the pods of a component, by name.
func (o *Observer) Pods(ctx context.Context, cl *cluster.Client, c *topology.Component) ([]*corev1.Pod, error) {
	w, err := o.workload(ctx, cl, c)
	if err != nil {
		return nil, err
	}
	return w.Pods, nil
}

// WatchPods waits until the watch of a component's pods has seen all of them, and returns a function that returns the
// pods that exist, by name.
func (o *Observer) WatchPods(
	ctx context.Context, cl *cluster.Client, c *topology.Component,
) (func() []*corev1.Pod, error) {
	pods := o.of(cl).informers.pods(o.background, cl, o.selector)
	if err := pods.wait(ctx); err != nil {
		return nil, err
	}
	return func() []*corev1.Pod { return byName(indexed[*corev1.Pod](pods, string(c.ID()))) }, nil
}

// RunningPod returns the newest pod of a component that is ready. If none is ready, it returns the newest one that
// runs.
func (o *Observer) RunningPod(ctx context.Context, cl *cluster.Client, c *topology.Component) (*corev1.Pod, error) {
	pods, err := o.Pods(ctx, cl, c)
	if err != nil {
		return nil, err
	}
	var best *corev1.Pod
	for _, p := range pods {
		if Running(p) && (best == nil || preferred(p, best)) {
			best = p
		}
	}
	if best == nil {
		return nil, clierr.New(clierr.Failed, "find the reason with: kcpctl status",
			"%s has no running pod (%s)", c.ID(), cl.Where())
	}
	return best, nil
}

// Running reports whether a pod runs and is not being deleted.
func Running(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning
}

func preferred(p, other *corev1.Pod) bool {
	if a, b := ready.PodReady(p), ready.PodReady(other); a != b {
		return a
	}
	return other.CreationTimestamp.Before(&p.CreationTimestamp)
}

func (o *Observer) of(cl *cluster.Client) *clusterWatch {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.clusters[cl] == nil {
		o.clusters[cl] = &clusterWatch{}
	}
	return o.clusters[cl]
}

// workload collects what a component runs on.
func (o *Observer) workload(
	ctx context.Context, cl *cluster.Client, c *topology.Component,
) (*ready.Workload, error) {
	setup := metav1.ListOptions{LabelSelector: o.selector}
	all := &o.of(cl).informers
	var (
		statefulSets = all.watch(o.background, cl, kind.StatefulSet.GVR(), setup, untyped)
		deployments  = all.watch(o.background, cl, kind.Deployment.GVR(), setup, untyped)
		replicaSets  = all.watch(o.background, cl, kind.ReplicaSets, setup, untyped)
		pods         = all.pods(o.background, cl, o.selector)
		claims       = all.watch(o.background, cl, kind.PersistentVolumeClaim.GVR(), setup,
			typed[corev1.PersistentVolumeClaim])
	)
	for _, i := range []*informer{statefulSets, deployments, replicaSets, pods, claims} {
		if err := i.wait(ctx); err != nil {
			return nil, err
		}
	}
	id := string(c.ID())
	w := &ready.Workload{
		Wanted: c.Replicas, Autoscaled: c.Autoscaled,
		ReplicaSets: indexed[*unstructured.Unstructured](replicaSets, id),
		Pods:        byName(indexed[*corev1.Pod](pods, id)),
		Claims:      indexed[*corev1.PersistentVolumeClaim](claims, id),
	}
	for _, i := range []*informer{statefulSets, deployments} {
		for _, u := range indexed[*unstructured.Unstructured](i, id) {
			if u.GetName() == c.Object() {
				w.Object = u
			}
		}
	}
	return w, nil
}

// warnings returns the warning events about a workload that have been seen so far. The first call starts the watch. A
// user who may not read events gets none.
func (o *Observer) warnings(cl *cluster.Client, w *ready.Workload) []*corev1.Event {
	events := o.of(cl).informers.watch(o.background, cl, kind.Events,
		metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning}, typed[corev1.Event])
	keys := []string{w.Object.GetKind() + "/" + w.Object.GetName()}
	for _, p := range w.Pods {
		keys = append(keys, "Pod/"+p.Name)
	}
	for _, c := range w.Claims {
		keys = append(keys, "PersistentVolumeClaim/"+c.Name)
	}
	var out []*corev1.Event
	for _, k := range keys {
		out = append(out, indexed[*corev1.Event](events, k)...)
	}
	return out
}

func byName(pods []*corev1.Pod) []*corev1.Pod {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}
