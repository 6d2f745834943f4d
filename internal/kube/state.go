package kube

import (
	"context"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/ready"
	"github.com/kcpctl/kcpctl/internal/topology"
)

const (
	// lastWords is how many lines of a crashed container's log are shown, and lastLines how many are read: what ended it may be
	// followed by what it logged while it ended.
	lastWords        = 10
	lastLines        = 100
	lastWordsTimeout = 3 * time.Second
)

// State says how far a component is, from what watches have seen.
func (r *Runtime) State(ctx context.Context, c *topology.Component) (ready.State, error) {
	if c.Kind == topology.Base || c.Kind == topology.Kubeconfig {
		return ready.State{Ready: true}, nil
	}
	s, err := r.siteOf(quiet(ctx), c)
	if err != nil {
		return ready.State{}, err
	}
	w, err := r.workload(quiet(ctx), s, c)
	if err != nil {
		return ready.State{}, err
	}
	now := r.options.Now()
	if w.Object != nil && r.applied.outdated(plan.RefOf(s.Name, w.Object), w.Object) {
		return ready.State{Replicas: c.Replicas, Reason: "the rollout has not begun"}, nil
	}
	if w.WantsEvents(now) {
		w.Events = r.warningsAbout(s, w)
	}
	state, crash := w.State(now)
	if w.Object == nil {
		state.Replicas = c.Replicas
	}
	if crash != nil {
		lines := s.lastLines(quiet(ctx), *crash)
		state.Next = crash.Next(lines)
		state.Detail = append(state.Detail, lines[max(0, len(lines)-lastWords):]...)
	}
	return state, nil
}

// workload collects what a component runs on.
func (r *Runtime) workload(ctx context.Context, s *site, c *topology.Component) (*ready.Workload, error) {
	setup := metav1.ListOptions{LabelSelector: r.selector()}
	var (
		statefulSets = s.watch(r.background, known("StatefulSet").gvr(), setup, slim)
		deployments  = s.watch(r.background, known("Deployment").gvr(), setup, slim)
		replicaSets  = s.watch(r.background, replicaSets(), setup, slim)
		pods         = s.watch(r.background, pods(), setup, typed[corev1.Pod])
		claims       = s.watch(r.background, known("PersistentVolumeClaim").gvr(), setup, typed[corev1.PersistentVolumeClaim])
	)
	for _, w := range []*watched{statefulSets, deployments, replicaSets, pods, claims} {
		if err := w.wait(ctx); err != nil {
			return nil, err
		}
	}
	id := string(c.ID())
	w := &ready.Workload{
		ReplicaSets: indexed[*unstructured.Unstructured](replicaSets, id),
		Pods:        indexed[*corev1.Pod](pods, id),
		Claims:      indexed[*corev1.PersistentVolumeClaim](claims, id),
	}
	for _, all := range []*watched{statefulSets, deployments} {
		for _, o := range indexed[*unstructured.Unstructured](all, id) {
			if o.GetName() == c.Object() {
				w.Object = o
			}
		}
	}
	slices.SortFunc(w.Pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return w, nil
}

// warningsAbout returns the warnings about a workload that have been seen so far. The first call starts to watch them. Who
// may not read events goes without.
func (r *Runtime) warningsAbout(s *site, w *ready.Workload) []*corev1.Event {
	seen := s.watch(r.background, events(), metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning}, typed[corev1.Event])
	keys := []string{w.Object.GetKind() + "/" + w.Object.GetName()}
	for _, p := range w.Pods {
		keys = append(keys, "Pod/"+p.Name)
	}
	for _, c := range w.Claims {
		keys = append(keys, "PersistentVolumeClaim/"+c.Name)
	}
	var out []*corev1.Event
	for _, k := range keys {
		out = append(out, indexed[*corev1.Event](seen, k)...)
	}
	return out
}

// words are what crashed containers logged last, by crash.
type words struct {
	mu    sync.Mutex
	known map[ready.Crash][]string
}

// lastLines returns the last lines that a crashed container logged: none if they cannot be had.
func (s *site) lastLines(ctx context.Context, c ready.Crash) []string {
	s.words.mu.Lock()
	lines, ok := s.words.known[c]
	s.words.mu.Unlock()
	if ok {
		return lines
	}
	ctx, cancel := context.WithTimeout(ctx, lastWordsTimeout)
	defer cancel()
	stream, err := s.open(ctx, s.podPath(c.Pod, "log"), url.Values{
		"container": {c.Container}, "previous": {strconv.FormatBool(c.Previous)}, "tailLines": {strconv.Itoa(lastLines)},
	}, nil)
	if err != nil {
		return nil // it is asked again the next time
	}
	defer stream.Close()
	raw, err := io.ReadAll(io.LimitReader(stream, 64<<10))
	if err != nil {
		return nil
	}
	lines = strings.Split(strings.TrimSpace(string(raw)), "\n")
	s.words.mu.Lock()
	defer s.words.mu.Unlock()
	if s.words.known == nil {
		s.words.known = map[ready.Crash][]string{}
	}
	s.words.known[c] = lines
	return lines
}

// podPath is the path of a subresource of a pod.
func (s *site) podPath(pod, subresource string) string {
	return "/api/v1/namespaces/" + s.Namespace + "/pods/" + pod + "/" + subresource
}
