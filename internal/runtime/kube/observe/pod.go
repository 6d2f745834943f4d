package observe

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/ready"
)

// eventsAfter is the age at which the events of a pod that does not run are read.
const eventsAfter = 2 * time.Second

// PodState is the state of a pod that kcpctl has created for itself.
type PodState struct {
	// Gone means that the pod does not exist.
	Gone  bool
	Phase corev1.PodPhase
	// Reason is why it does not run, or "". Stuck means that this lasts until something is changed.
	Reason string
	Stuck  bool
	// Log are the last lines of its log, if it has ended.
	Log []string
}

// PodState reads the state of a pod with a volume.
func (o *Observer) PodState(ctx context.Context, cl *cluster.Client, pod, claim string) (out PodState, err error) {
	w, now := &ready.Workload{}, o.now()
	p := &corev1.Pod{}
	if ok, err := read(ctx, cl, kind.Pod, pod, p); !ok || err != nil {
		return PodState{Gone: err == nil}, err
	}
	c := &corev1.PersistentVolumeClaim{}
	if ok, err := read(ctx, cl, kind.PersistentVolumeClaim, claim, c); err != nil {
		return out, err
	} else if ok {
		w.Claims = append(w.Claims, c)
	}
	if p.Status.Phase != corev1.PodRunning && now.Sub(p.CreationTimestamp.Time) > eventsAfter {
		w.Events = podWarnings(ctx, cl, pod)
	}
	out.Phase = p.Status.Phase
	var crash *ready.Crash
	if out.Reason, out.Stuck, crash = w.PodState(p, now); crash != nil {
		out.Log = o.of(cl).logs.lastLines(ctx, cl, *crash)
	}
	return out, nil
}

// read reads an object into a typed one. ok is false if it does not exist.
func read(ctx context.Context, cl *cluster.Client, k kind.Kind, name string, into any) (ok bool, err error) {
	o, err := cl.Get(ctx, k, name)
	if o == nil || err != nil {
		return false, err
	}
	return true, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into)
}

// podWarnings returns the warning events about a pod. A user who may not read events gets none.
func podWarnings(ctx context.Context, cl *cluster.Client, pod string) []*corev1.Event {
	l, err := cl.Resource(kind.Events).List(ctx, metav1.ListOptions{
		FieldSelector: "type=" + corev1.EventTypeWarning + ",involvedObject.name=" + pod,
	})
	if err != nil {
		return nil
	}
	var out []*corev1.Event
	for i := range l.Items {
		e := &corev1.Event{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(l.Items[i].Object, e) == nil {
			out = append(out, e)
		}
	}
	return out
}
