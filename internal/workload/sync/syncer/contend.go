package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// An object is contended when another client of the physical cluster changes it repeatedly. Each correction brings the
// next change, and both would write as fast as they can.
const (
	// contendedAfter is the number of corrections within contendedFor after which an object is contended, until a
	// correction has stayed for contendedFor.
	contendedAfter = 3
	contendedFor   = time.Minute
	// The delays between the corrections of a contended object.
	firstCorrection = time.Second
	lastCorrection  = 5 * time.Minute
)

// An object that the cluster fails to accept, such as because a webhook does not answer, is reported after this many
// tries. The message is written once in a while: it can differ each time, and a written status brings the leaf back at
// once.
const (
	reportedAfter = 3
	reportedEvery = time.Minute
	// reportTimeout is how long the report may take. The time for the object itself can be over.
	reportTimeout = 10 * time.Second
)

// contention has the objects that were corrected lately, or are tried again. The zero value is empty.
type contention struct {
	mu     sync.Mutex
	fights map[item]*fight
	told   map[item]time.Time
}

// fight has the corrections of one object.
type fight struct {
	// times are the times of the last corrections, at most contendedAfter.
	times []time.Time
	// delay is the time between two corrections. Zero: the object is not contended.
	delay time.Duration
	// managers are the field managers of other clients. Nil: not read yet.
	managers []string
}

func (f *fight) last() time.Time { return f.times[len(f.times)-1] }

// corrected records a correction, and reports whether the object is contended.
func (c *contention) corrected(i item, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fights == nil {
		c.fights = map[item]*fight{}
	}
	f := c.fights[i]
	if f == nil {
		f = &fight{}
		c.fights[i] = f
	}
	f.times = append(f.times, now)
	f.times = f.times[max(0, len(f.times)-contendedAfter):]
	switch {
	case f.delay > 0:
		f.delay = min(2*f.delay, lastCorrection)
	case len(f.times) == contendedAfter && now.Sub(f.times[0]) < contendedFor:
		f.delay = firstCorrection
	}
	return f.delay > 0
}

// wait returns how long the next correction has to wait, and whether the managers must be read: it is contended, or
// will be with this correction.
func (c *contention) wait(i item, now time.Time) (wait time.Duration, ask bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.fights[i]
	if f == nil {
		return 0, false
	}
	if f.delay > 0 {
		wait = max(0, f.last().Add(f.delay).Sub(now))
	}
	return wait, f.managers == nil && len(f.times) >= contendedAfter-1
}

// against records the field managers of other clients.
func (c *contention) against(i item, managers []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.fights[i]; f != nil {
		f.managers = managers
	}
}

// stays ends the contention of an object that is as it was corrected, if that was long enough ago.
func (c *contention) stays(i item, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.fights[i]; f != nil && now.Sub(f.last()) >= contendedFor {
		delete(c.fights, i)
	}
}

// contended reports whether an object is contended, and with whom.
func (c *contention) contended(i item) (managers []string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.fights[i]
	if f == nil || f.delay == 0 {
		return nil, false
	}
	return f.managers, true
}

// tell reports whether the present error of an object is to be written, and records it.
func (c *contention) tell(i item, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.told[i]; ok && now.Sub(at) < reportedEvery {
		return false
	}
	if c.told == nil {
		c.told = map[item]time.Time{}
	}
	c.told[i] = now
	return true
}

// untell forgets that the error of an object was written, so that the next one is.
func (c *contention) untell(i item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.told, i)
}

// free forgets objects that have not been looked at for long: their leaves are gone.
func (c *contention) free(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, f := range c.fights {
		if now.Sub(f.last()) > max(contendedFor, 2*f.delay) {
			delete(c.fights, i)
		}
	}
	for i, at := range c.told {
		if now.Sub(at) > reportedEvery {
			delete(c.told, i)
		}
	}
}

// holdsBack reports whether the correction of an object has to wait. The object comes back then.
func (s *syncer) holdsBack(ctx context.Context, i item, desired *unstructured.Unstructured) bool {
	wait, ask := s.contention.wait(i, s.Now())
	if ask {
		s.contention.against(i, s.managersOf(ctx, i, desired))
	}
	if wait > 0 {
		s.queue.AddAfter(i, wait)
	}
	return wait > 0
}

// corrected records that an object was applied again though the leaf has not changed, if that has changed the object:
// other clients may set fields that the leaf does not have.
func (s *syncer) corrected(i item, last watch.Version, live, object *unstructured.Unstructured) {
	v := watch.VersionOf(object)
	if v == last || live != nil && v == watch.VersionOf(live) {
		return
	}
	if s.contention.corrected(i, s.Now()) {
		s.queue.AddAfter(i, contendedFor)
	}
}

// managersOf returns the field managers of other clients that change an object, sorted. Managers of the status are
// ignored.
func (s *syncer) managersOf(ctx context.Context, i item, desired *unstructured.Unstructured) []string {
	client, err := s.below(i.GroupVersionResource, desired.GetNamespace())
	if err != nil {
		return nil
	}
	live, err := client.Get(ctx, desired.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil // the correction shows the error
	}
	out := []string{}
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
	s.contention.untell(i)
	managers, contended := s.contention.contended(i)
	if !contended || o.reason != api.ReasonSynced {
		return o
	}
	who := "another client of the cluster"
	if len(managers) > 0 {
		who = "field manager " + strings.Join(managers, ", ")
	}
	return outcome{api.ReasonContendedField, fmt.Sprintf(
		"%s changes the object in cluster %s repeatedly, so that corrections wait up to %s: "+
			"stop that client there, or leave the fields that it sets out of the object", who,
		s.Cluster, lastCorrection)}
}

// retrying reports an error after which a leaf is tried again, if it lasts. It returns the error.
func (s *syncer) retrying(ctx context.Context, i item, leaf watch.Object, cause error) error {
	if s.queue.NumRequeues(i)+1 < reportedAfter || errors.Is(ctx.Err(), context.Canceled) ||
		!s.contention.tell(i, s.Now()) {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	message := fmt.Sprintf("%v. It is tried again, at least every %s", cause, lastRetry)
	err := s.writeStatus(ctx, i, leaf, s.present(i, leaf), outcome{api.ReasonRetrying, message})
	if apierrors.IsConflict(err) {
		s.contention.untell(i) // the next attempt reports it
		return cause
	}
	return errors.Join(cause, err)
}

// present returns the object that a leaf has in the cluster, or nil. It runs there, whatever the cluster says to the
// present leaf.
func (s *syncer) present(i item, leaf watch.Object) *unstructured.Unstructured {
	at := watch.Key{Namespace: api.DownstreamNamespace(s.Setup, i.Cluster, i.Namespace), Name: name(leaf.Unstructured)}
	if live, ok := s.down.Get(i.GroupVersionResource, at); ok &&
		live.GetAnnotations()[annotationLeaf] == i.Key.String() {
		return live.Unstructured
	}
	return nil
}
