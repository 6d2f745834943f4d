package facts

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

const (
	// probeStart is how long a pod may take to start: its image may have to be pulled.
	probeStart = 2 * time.Minute
	// probeRemoval is how long the removal of a pod may take after the run was interrupted.
	probeRemoval = 10 * time.Second
	// probeAge is the age at which the pod of another run is a leftover, also if no node has ever started it.
	probeAge = 2 * probeDeadline * time.Second
)

// Reach tries addresses from pods in the namespace, which it creates and deletes. It also deletes those that earlier
// runs have left behind.
func (c *Cluster) Reach(ctx context.Context, p check.Probe) ([]check.Answer, error) {
	cl := c.client
	if err := cl.Connect(ctx); err != nil {
		return nil, err
	}
	ns, err := cl.ReadNamespace(ctx)
	if err != nil {
		return nil, err
	}
	if ns == nil {
		return nil, fmt.Errorf("%w: Namespace/%s does not exist yet (%s)", check.ErrUnknown, cl.Namespace, cl.Where())
	}
	if err := c.removeLeftovers(ctx); err != nil {
		return nil, err
	}
	chunks := slices.Collect(slices.Chunk(p.Addresses, maxIssuers))
	answers := make([][]check.Answer, len(chunks))
	err = parallel.Each(ctx, parallel.Indices(chunks), func(ctx context.Context, i int) (err error) {
		answers[i], err = c.probe(ctx, check.Probe{Pod: p.Pod, Addresses: chunks[i]})
		return err
	})
	return slices.Concat(answers...), err
}

// removeLeftovers deletes the pods of interrupted runs. It keeps the pods of runs in progress.
func (c *Cluster) removeLeftovers(ctx context.Context) error {
	pods, err := c.client.Pods(ctx, labels.SelectorFromSet(labels.Set{
		topology.LabelSetup: c.setup, topology.LabelPurpose: topology.PurposeReachability,
	}).String())
	if err != nil {
		return err
	}
	for _, p := range pods {
		ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		if !ended && c.now().Sub(p.CreationTimestamp.Time) < probeAge {
			continue
		}
		if err := c.removeProbe(ctx, p.Name); err != nil {
			return err
		}
	}
	return nil
}

// probe tries addresses from one pod.
func (c *Cluster) probe(ctx context.Context, p check.Probe) (_ []check.Answer, err error) {
	name := topology.Object(c.setup, topology.Base, "", topology.PurposeReachability, rand.String(5))
	pod, err := probePod(name, p)
	if err != nil {
		return nil, err
	}
	refused := c.createProbe(ctx, pod)
	if refused != nil && ctx.Err() == nil {
		return nil, refused
	}
	defer func() { // also if the run was interrupted before the answer to the creation arrived
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeRemoval)
		defer cancel()
		if failed := c.removeProbe(ctx, name); err == nil {
			err = failed
		}
	}()
	if refused != nil {
		return nil, refused
	}
	if err := c.waitStarted(ctx, name); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, probeTime, fmt.Errorf("no answer within %s", probeTime))
	defer cancel()
	stream, err := c.client.Stream(ctx, c.client.PodPath(name, "log"), url.Values{
		"container": {probeContainer}, "follow": {"true"},
	})
	if err != nil {
		return nil, c.client.Explain(err, "read the log of Pod/%s/%s", c.client.Namespace, name)
	}
	defer stream.Close()
	l := newProbeLog(p.Addresses)
	l.read(stream)
	return l.result(ctx), nil
}

func (c *Cluster) createProbe(ctx context.Context, pod *corev1.Pod) error {
	err := c.client.Write(ctx, kind.Pods, pod, &corev1.Pod{})
	switch {
	case err == nil:
		return nil
	case cluster.IsDenied(err):
		return fmt.Errorf("%w: the user may not create pods (%s)", check.ErrUnknown, c.client.Where())
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: the namespace does not admit the pod: %s", check.ErrUnknown, withoutPodName(err.Error()))
	}
	return c.client.Explain(err, "create Pod/%s/%s", c.client.Namespace, pod.Name)
}

func (c *Cluster) removeProbe(ctx context.Context, name string) error {
	err := c.client.Resource(kind.Pods).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return c.client.Explain(err, "delete Pod/%s/%s", c.client.Namespace, name)
}

// waitStarted waits until the container of a probe runs or has ended. It fails as soon as it is known why it does not
// start.
func (c *Cluster) waitStarted(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeStart, fmt.Errorf("not started within %s", probeStart))
	defer cancel()
	return c.client.WaitFor(ctx, func() (string, error) {
		o, err := c.client.Get(ctx, kind.Pod, name)
		if err != nil {
			return "", err
		}
		if o == nil {
			return "", fmt.Errorf("%w: Pod/%s/%s was deleted", check.ErrUnknown, c.client.Namespace, name)
		}
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, pod); err != nil {
			return "", err
		}
		return notStarted(pod)
	})
}

// notStarted returns what a pod waits for: nothing if its container has started. The error is the reason why it never
// will.
func notStarted(p *corev1.Pod) (string, error) {
	what := "Pod/" + p.Namespace + "/" + p.Name + " to start"
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
			what += ": " + cond.Message
		}
	}
	for _, st := range p.Status.ContainerStatuses {
		switch w := st.State.Waiting; {
		case w == nil:
			return "", nil
		case strings.HasPrefix(w.Reason, "Err"), strings.HasSuffix(w.Reason, "Error"),
			strings.HasSuffix(w.Reason, "BackOff"),
			w.Reason == "InvalidImageName":
			return "", fmt.Errorf("%w: Pod/%s/%s does not start: %s: %s", check.ErrUnknown, p.Namespace, p.Name,
				w.Reason, w.Message)
		}
	}
	return what, nil
}
