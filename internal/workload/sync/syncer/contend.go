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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
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

// contention has the objects that were corrected lately.
type contention struct {
	// delays has how long corrections wait, by their number.
	delays workqueue.TypedRateLimiter[item]

	mu     sync.Mutex
	fights map[item]fight
}

// fight is about an object that was corrected.
type fight struct {
	// last is the time of the last correction. The next one waits until next.
	last, next time.Time
	// managers are the field managers of other clients, before the last correction of a contended object.
	managers []string
}

func newContention() *contention {
	return &contention{
		delays: workqueue.NewTypedItemExponentialFailureRateLimiter[item](firstCorrection, lastCorrection),
		fights: map[item]fight{},
	}
}

func (c *contention) corrected(i item, managers []string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fights[i] = fight{now, now.Add(c.delays.When(i)), managers}
}

// wait returns how long the next correction has to wait.
func (c *contention) wait(i item, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, c.fights[i].next.Sub(now))
}

// stays ends the contention of an object that is as it was corrected, if that was long enough ago.
func (c *contention) stays(i item, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.fights[i]; ok && now.Sub(f.last) >= contendedFor {
		delete(c.fights, i)
		c.delays.Forget(i)
	}
}

// contended reports whether an object is contended, and with whom.
func (c *contention) contended(i item) (managers []string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fights[i].managers, c.delays.NumRequeues(i) >= contendedAfter
}

func (c *contention) forget(i item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fights, i)
	c.delays.Forget(i)
}

// rivals returns the field managers of other clients that change an object, sorted, if the next correction makes it
// contended. The correction takes their fields away, so this is read before. Managers of the status are ignored.
func (s *syncer) rivals(ctx context.Context, i item, client dynamic.ResourceInterface, name string) []string {
	if s.contention.delays.NumRequeues(i) < contendedAfter-1 {
		return nil
	}
	live, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
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
	tries := s.queue.NumRequeues(i) + 1
	again := outcomeIn(leaf.Unstructured) == api.ReasonRetrying && tries%reportedEvery != 0
	if tries < reportedAfter || again || errors.Is(ctx.Err(), context.Canceled) {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	message := fmt.Sprintf("%v. It is tried again, at least every %s", cause, lastRetry)
	err := s.leaves.writeStatus(ctx, i, leaf, s.present(i, leaf), outcome{api.ReasonRetrying, message})
	if apierrors.IsConflict(err) {
		return cause // the next attempt reports it
	}
	return errors.Join(cause, err)
}
