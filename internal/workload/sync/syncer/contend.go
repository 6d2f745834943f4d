package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/queue"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// Two clients that set the same field would correct each other as fast as they can. So the corrections of an object
// wait, longer each time, until one has stayed for contendedFor.
const (
	firstCorrection = time.Second
	lastCorrection  = 5 * time.Minute
	contendedFor    = time.Minute
	// contendedAfter is the number of corrections after which the object is contended, which its user sees.
	contendedAfter = 3
)

// An object that the cluster fails to accept, such as because a webhook does not answer, is reported after this many
// tries. The message can differ each time, and a written status brings the leaf back at once, so it is written again
// only after so many more.
const (
	reportedAfter = 3
	reportedEvery = 10
	// reportTimeout is how long the report may take. The time for the object itself can be over.
	reportTimeout = 10 * time.Second
)

// applied is what was applied for a leaf, and how often that was corrected. Only the worker that has the item uses it.
type applied struct {
	// hash is the hash of the object that was sent, and version the version of the answer.
	hash    uint64
	version watch.Version
	// corrections is the number of corrections none of which has stayed, and corrected the time of the last one.
	corrections int
	corrected   time.Time
	// managers are the field managers of other clients, before the last correction of a contended object.
	managers []string
	// refused is the hash of an object that the cluster refuses, and refusedAt when that was written to the leaf.
	refused   uint64
	refusedAt time.Time
}

func (a *applied) wait(now time.Time) time.Duration {
	if a.corrections == 0 {
		return 0
	}
	delay := lastCorrection
	if n := a.corrections - 1; n < 10 {
		delay = min(delay, firstCorrection<<n)
	}
	return max(0, a.corrected.Add(delay).Sub(now))
}

func (a *applied) correct(managers []string, now time.Time) {
	a.corrections++
	a.corrected = now
	a.managers = managers
}

// stays reports whether the last correction has stayed for long enough. That ends the contention.
func (a *applied) stays(now time.Time) bool {
	return a.corrections > 0 && now.Sub(a.corrected) >= contendedFor
}

func (a *applied) contended() bool { return a.corrections >= contendedAfter }

// rivals returns the field managers of other clients that change an object, sorted. A correction takes their fields
// away, so this is read before. Managers of the status are ignored.
func (v *view) rivals(ctx context.Context, r schema.GroupVersionResource, object *unstructured.Unstructured) []string {
	live, err := v.read(ctx, r, object.GetNamespace(), object.GetName())
	if err != nil || live == nil {
		return nil // the correction shows the error
	}
	var out []string
	for _, m := range live.GetManagedFields() {
		if m.Manager != api.ManagerSyncer && m.Subresource == "" {
			out = append(out, m.Manager)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// judged returns the condition of a leaf whose object was accepted, or refused: a contended object is not synced,
// whichever client was last.
func (s *syncer) judged(i item, o outcome) outcome {
	last := s.last(i)
	if !last.contended() || o.reason != api.ReasonSynced {
		return o
	}
	who := "another client of the cluster"
	if len(last.managers) > 0 {
		who = "field manager " + strings.Join(last.managers, ", ")
	}
	return outcome{api.ReasonContendedField, fmt.Sprintf(
		"%s changes the object in cluster %s repeatedly, so that corrections wait up to %s: "+
			"stop that client there, or leave the fields that it sets out of the object", who,
		s.Cluster, lastCorrection)}
}

// steady returns the outcome of a leaf that the cluster refuses: what the leaf says, if that is about the same object
// and has the same reason, and was written a short time ago. The message of an API server can differ each time, and a
// written status brings the leaf back at once. After the outcome was written, written must be called.
func (s *syncer) steady(i item, leaf watch.Object, o outcome) (_ outcome, written func()) {
	now := s.Now()
	hash := hashOf(s.transform(leaf.Unstructured).Object)
	has := outcomeIn(leaf.Unstructured)
	last := s.last(i)
	if has.reason == o.reason && last.refused == hash && now.Sub(last.refusedAt) < refusedInterval {
		return has, func() {}
	}
	return o, func() {
		last := s.last(i)
		last.refused = hash
		last.refusedAt = now
		s.applied.Store(i, last)
	}
}

// retrying reports an error after which a leaf is tried again, if it lasts. It returns the error.
func (s *syncer) retrying(ctx context.Context, i item, leaf watch.Object, cause error) error {
	tries := s.queue.NumRequeues(i) + 1
	again := outcomeIn(leaf.Unstructured).reason == api.ReasonRetrying && tries%reportedEvery != 0
	if tries < reportedAfter || again || errors.Is(ctx.Err(), context.Canceled) {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	message := fmt.Sprintf("%v. It is tried again, at least every %s", cause, queue.LastRetry)
	err := s.writeStatus(ctx, i, leaf, s.present(i, leaf), outcome{api.ReasonRetrying, message})
	if apierrors.IsConflict(err) {
		return cause // the next attempt reports it
	}
	return errors.Join(cause, err)
}
