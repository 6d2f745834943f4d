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
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// canaryLabel is on the workspaces of canaries, with the name of the shard.
	canaryLabel = "kcpctl.dev/canary"
	// shardLabel is the label that every Shard object has (kcp: pkg/server/server.go).
	shardLabel   = "name"
	pollInterval = 200 * time.Millisecond
	cleanupTime  = 10 * time.Second
)

// Canary verifies that a shard serves: it creates a workspace that is scheduled there, waits until it is Ready, reads
// it through the client's server, which is a front-proxy, and deletes it. It waits until ctx ends, and reports what it
// waits for. It also deletes workspaces that an interrupted canary left.
func (c *Client) Canary(ctx context.Context, shard string, report func(reason string)) error {
	root, err := c.workspace(RootWorkspace)
	if err != nil {
		return err
	}
	workspaces := root.Resource(workspaceResource)
	name := "kcpctl-canary-" + strings.ToLower(rand.Text()[:10])
	w := canaryWorkspace(name, shard)
	defer func() {
		// Also if ctx has ended.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		_ = workspaces.DeleteCollection(cleanup, metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: canaryLabel + "=" + shard})
	}()
	// Right after a start the front-proxy may not know a shard or a workspace yet (kcp#3858): every step is retried.
	err = poll(ctx, report, func() error {
		_, err := workspaces.Create(ctx, w, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("create workspace %s:%s: %w", RootWorkspace, name, err)
	}
	err = poll(ctx, report, func() error {
		got, err := workspaces.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return workspaceReady(got)
	})
	if err != nil {
		return fmt.Errorf("workspace %s:%s: %w", RootWorkspace, name, err)
	}
	inside, err := c.workspace(RootWorkspace + ":" + name)
	if err != nil {
		return err
	}
	err = poll(ctx, report, func() error {
		_, err := inside.Resource(logicalClusterResource).Get(ctx, "cluster", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("read workspace %s:%s: %w", RootWorkspace, name, err)
	}
	return nil
}

// poll tries until it works or ctx ends. Then it returns the cause and the last error.
func poll(ctx context.Context, report func(string), try func() error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		err := try()
		if err != nil && ctx.Err() == nil {
			last = err
			report(err.Error())
		}
		return err == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case last == nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), last)
}

func canaryWorkspace(name, shard string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1",
		"kind":       "Workspace",
		"metadata":   map[string]any{"name": name, "labels": map[string]any{canaryLabel: shard}},
		"spec": map[string]any{
			"type":     map[string]any{"name": "universal", "path": RootWorkspace},
			"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{shardLabel: shard}}},
		},
	}}
}

// workspaceReady returns what a workspace that is not ready waits for.
func workspaceReady(w *unstructured.Unstructured) error {
	phase, _, _ := unstructured.NestedString(w.Object, "status", "phase")
	if phase == "Ready" {
		return nil
	}
	return errors.New(withReason(strings.ToLower(cmp.Or(phase, "not scheduled")), w))
}
