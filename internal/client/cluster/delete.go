package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
)

// pollInterval is how often WaitFor checks its condition.
const pollInterval = 250 * time.Millisecond

// Delete deletes an object as DeleteSeen does, and waits until it and its pods are gone.
func (c *Client) Delete(ctx context.Context, k kind.Kind, seen *unstructured.Unstructured) error {
	if err := c.DeleteSeen(ctx, k, seen); err != nil {
		return c.Explain(err, "delete %s", plan.RefOf(c.Name, seen))
	}
	return c.WaitGone(ctx, k, seen)
}

// DeleteSeen deletes an object only if it is still the one that was seen: see object.Delete.
func (c *Client) DeleteSeen(ctx context.Context, k kind.Kind, seen *unstructured.Unstructured) error {
	return object.Delete(ctx, c.For(k), seen, plan.RefOf(c.Name, seen))
}

// WaitGone waits until an object that was deleted and its pods are gone.
func (c *Client) WaitGone(ctx context.Context, k kind.Kind, o *unstructured.Unstructured) error {
	client, what, uid := c.For(k), plan.RefOf(c.Name, o), o.GetUID()
	if err := c.WaitFor(ctx, func() (missing string, err error) {
		live, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) || (err == nil && live.GetUID() != uid) {
			return "", nil
		}
		if err == nil && len(live.GetFinalizers()) > 0 {
			return fmt.Sprintf("%s to be gone; its finalizers are %s", what,
				strings.Join(live.GetFinalizers(), ", ")), nil
		}
		return what.String() + " to be gone", err
	}); err != nil || !k.HasPods() {
		return err
	}
	return c.waitNoPods(ctx, o)
}

// waitNoPods waits until the pods of a workload are gone.
func (c *Client) waitNoPods(ctx context.Context, workload *unstructured.Unstructured) error {
	match, _, err := unstructured.NestedStringMap(workload.Object, "spec", "selector", "matchLabels")
	if err != nil || len(match) == 0 {
		return err
	}
	selector := labels.SelectorFromSet(match).String()
	return c.WaitFor(ctx, func() (string, error) {
		l, err := c.Resource(kind.Pods).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil || len(l.Items) == 0 {
			return "", err
		}
		return fmt.Sprintf("Pod/%s/%s to be gone", c.Namespace, l.Items[0].GetName()), nil
	})
}

// noticeAfter is how long WaitFor waits for the same before the user is told.
const noticeAfter = 15 * time.Second

// WaitFor polls until condition returns that nothing is missing. What is missing last is part of the error. The user is
// told what is missing for long: a finalizer of another controller can keep an object forever.
func (c *Client) WaitFor(ctx context.Context, condition func() (missing string, err error)) error {
	missing, since, told := "", time.Now(), false
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		now, err := condition()
		if now != missing {
			missing, since, told = now, time.Now(), false
		}
		if !told && missing != "" && c.notify != nil && time.Since(since) >= noticeAfter {
			c.notify("waiting for %s (%s)", missing, c.Where())
			told = true
		}
		return err == nil && missing == "", err
	})
	if ctx.Err() != nil {
		return fmt.Errorf("wait for %s (%s): %w", missing, c.Where(), context.Cause(ctx))
	}
	return c.Explain(err, "wait for %s", missing)
}
