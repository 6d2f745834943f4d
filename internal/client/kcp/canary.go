package kcp

import (
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
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

const (
	// canaryLabel is on the workspaces of canaries, with the name of the shard. runLabel has the run that tests it, and
	// hourLabel the hour in which it began.
	canaryLabel  = "kcpctl.dev/canary"
	runLabel     = "kcpctl.dev/canary-run"
	hourLabel    = "kcpctl.dev/canary-hour"
	pollInterval = 200 * time.Millisecond
	// replaceAfter is how long a workspace may remain unchanged while it is initialized, before another one takes its
	// place: a shard whose server of virtual workspaces does not know a new workspace yet gives up (kcp:
	// pkg/reconciler/tenancy/initialization, apibinder_initializer_reconcile.go).
	replaceAfter = 30 * time.Second
	cleanupTime  = 10 * time.Second
)

// Canary verifies that a shard serves: it creates a workspace that is scheduled there, waits until it is Ready, reads
// it through the client's server, which is a front-proxy, and deletes it. It waits until ctx ends, and reports what it
// waits for. It also deletes workspaces that an interrupted canary left, but no workspace of another run that may still
// test the shard.
func (c *Client) Canary(ctx context.Context, shard string, report func(reason string)) error {
	workspaces := c.workspace(RootWorkspace).Resource(workspaceResource)
	began := time.Now().UTC()
	labels := map[string]string{canaryLabel: shard, runLabel: random(), hourLabel: hour(began)}
	defer func() {
		// Also if ctx has ended.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		own := fmt.Sprintf("%s=%s,%s=%s", canaryLabel, shard, runLabel, labels[runLabel])
		left := fmt.Sprintf("%s=%s,%s notin (%s,%s,%s)", canaryLabel, shard, hourLabel,
			hour(began.Add(-time.Hour)), hour(began), hour(began.Add(time.Hour)))
		for _, selector := range []string{own, left} {
			_ = workspaces.DeleteCollection(cleanup, metav1.DeleteOptions{},
				metav1.ListOptions{LabelSelector: selector})
		}
	}()
	for {
		err := c.canary(ctx, workspaces, labels, report)
		if !errors.Is(err, errGivenUp) {
			return err
		}
		report(err.Error() + "; trying another one")
	}
}

func random() string { return strings.ToLower(rand.Text()[:10]) }

func hour(t time.Time) string { return t.Format("2006-01-02T15") }

// canary tests a shard with one workspace.
func (c *Client) canary(
	ctx context.Context, workspaces dynamic.ResourceInterface, labels map[string]string, report func(reason string),
) error {
	name := "kcpctl-canary-" + labels[canaryLabel] + "-" + random()
	w := canaryWorkspace(name, labels)
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

func canaryWorkspace(name string, labels map[string]string) *unstructured.Unstructured {
	w := kcpapi.Workspace.New(name)
	w.SetLabels(labels)
	w.Object["spec"] = map[string]any{
		"type":     map[string]any{"name": "universal", "path": RootWorkspace},
		"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{nameLabel: labels[canaryLabel]}}},
	}
	return w
}
