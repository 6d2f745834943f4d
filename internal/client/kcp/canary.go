package kcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

const (
	// canaryLabel is on the workspaces of canaries, with the name of the shard.
	canaryLabel  = "kcpctl.dev/canary"
	pollInterval = 200 * time.Millisecond
	// rescheduleAfter is how long the scheduler leaves a workspace alone before it is made to try again.
	rescheduleAfter = time.Second
	// scheduledAnnotation of a canary's workspace is changed, so that the scheduler tries again.
	scheduledAnnotation = "kcpctl.dev/scheduling-requested-at"
	phaseScheduling     = "Scheduling"
	// replaceAfter is how long a workspace may remain unchanged while it is initialized, before another one takes its
	// place: a shard whose server of virtual workspaces does not know a new workspace yet gives up (kcp:
	// pkg/reconciler/tenancy/initialization, apibinder_initializer_reconcile.go).
	replaceAfter      = 30 * time.Second
	phaseInitializing = "Initializing"
	cleanupTime       = 10 * time.Second
)

// Canary verifies that a shard serves: it creates a workspace that is scheduled there, waits until it is Ready, reads
// it through the client's server, which is a front-proxy, and deletes it. It waits until ctx ends, and reports what it
// waits for. It also deletes workspaces that an interrupted canary left.
func (c *Client) Canary(ctx context.Context, shard string, report func(reason string)) error {
	workspaces := c.workspace(RootWorkspace).Resource(workspaceResource)
	defer func() {
		// Also if ctx has ended.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		_ = workspaces.DeleteCollection(cleanup, metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: canaryLabel + "=" + shard})
	}()
	for {
		err := c.canary(ctx, workspaces, shard, report)
		if !errors.Is(err, errGivenUp) {
			return err
		}
		report(err.Error() + "; trying another one")
	}
}

// errGivenUp is the cause of a workspace that kcp does not initialize any further.
var errGivenUp = errors.New("kcp no longer initializes it")

// canary tests a shard with one workspace.
func (c *Client) canary(
	ctx context.Context, workspaces dynamic.ResourceInterface, shard string, report func(reason string),
) error {
	name := "kcpctl-canary-" + shard + "-" + strings.ToLower(rand.Text()[:10])
	w := canaryWorkspace(name, shard)
	// Right after a start the front-proxy may not know a shard or a workspace yet (kcp#3858): every step is retried.
	err := poll.UntilWorks(ctx, pollInterval, report, func() error {
		_, err := workspaces.Create(ctx, w, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("create workspace %s:%s: %w", RootWorkspace, name, err)
	}
	if err := awaitReady(ctx, workspaces, name, replaceAfter, report); err != nil {
		return fmt.Errorf("workspace %s:%s: %w", RootWorkspace, name, err)
	}
	inside := c.workspace(RootWorkspace + ":" + name).Resource(logicalClusterResource)
	err = poll.UntilWorks(ctx, pollInterval, report, func() error {
		_, err := inside.Get(ctx, kcpapi.LogicalClusterName, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("read workspace %s:%s: %w", RootWorkspace, name, err)
	}
	return nil
}

// awaitReady waits until a workspace is Ready. Right after a start the scheduler fails, because workspace types and
// shards reach it through the cache. It would try again after 5, 10, 20 ms and so on, up to 5 s and more, but it also
// tries again when the workspace changes (kcp: pkg/reconciler/tenancy/workspace/workspace_controller.go). So an
// annotation of a workspace is changed if the scheduler has left it alone for a while. With a patience, it gives up a
// workspace that does not change for that time while it is initialized.
func awaitReady(
	ctx context.Context, workspaces dynamic.ResourceInterface, name string, patience time.Duration, report func(string),
) error {
	idle := stillness{limit: rescheduleAfter}
	stuck := stillness{limit: patience}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	return poll.UntilWorks(ctx, pollInterval, report, func() error {
		got, err := workspaces.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phaseOf(got) == phaseScheduling && idle.reached(got.GetResourceVersion()) {
			now := map[string]any{scheduledAnnotation: time.Now().UTC().Format(time.RFC3339Nano)}
			_, _ = mergepatch.Send(ctx, workspaces, object.FieldManager, name, "",
				map[string]any{"metadata": map[string]any{"annotations": now}})
		}
		if patience > 0 && phaseOf(got) == phaseInitializing && stuck.reached(got.GetResourceVersion()) {
			giveUp(errGivenUp)
		}
		return workspaceReady(got)
	})
}

// stillness measures how long an object does not change. The limit doubles each time that it is reached: a change of
// the object at the wrong moment makes the scheduler fail with a conflict, and a slow scheduler must not fail forever.
type stillness struct {
	limit   time.Duration
	version string
	since   time.Time
}

func (s *stillness) reached(version string) bool {
	now := time.Now()
	if version != s.version || s.since.IsZero() {
		s.version = version
		s.since = now
		return false
	}
	if now.Sub(s.since) < s.limit {
		return false
	}
	s.since = now
	s.limit = 2 * s.limit
	return true
}

func canaryWorkspace(name, shard string) *unstructured.Unstructured {
	w := kcpapi.Workspace.New(name)
	w.SetLabels(map[string]string{canaryLabel: shard})
	w.Object["spec"] = map[string]any{
		"type":     map[string]any{"name": "universal", "path": RootWorkspace},
		"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{nameLabel: shard}}},
	}
	return w
}

func phaseOf(w *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(w.Object, "status", "phase")
	return phase
}

// workspaceReady returns what a workspace that is not ready waits for.
func workspaceReady(w *unstructured.Unstructured) error {
	phase := phaseOf(w)
	if phase == "Ready" {
		return nil
	}
	return errors.New(withReason(strings.ToLower(cmp.Or(phase, "not scheduled")), w))
}
