package day2

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

func workspaces() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}
}

// startLoad sends requests with a kubeconfig until stop is called. It reads the file again when it changes.
func startLoad(t *testing.T, kubeconfig string, dial func(context.Context, string, string) (net.Conn, error), creates bool) *framework.Load {
	t.Helper()
	l := &framework.Load{Kubeconfig: kubeconfig, Dial: dial, Creates: creates, Now: framework.Tally{Failures: map[string]*framework.Failure{}}}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	every := func(pause time.Duration, do func(context.Context)) {
		all.Go(func() {
			for ctx.Err() == nil {
				do(ctx)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	for _, shard := range []string{"root", "alpha"} {
		every(100*time.Millisecond, func(ctx context.Context) { read(ctx, l, shard) })
		every(300*time.Millisecond, func(ctx context.Context) { write(ctx, l, shard) })
		if creates {
			every(time.Second, func(ctx context.Context) { create(ctx, l, shard) })
		}
	}
	var once sync.Once
	l.Stop = func() framework.Tally {
		once.Do(func() { cancel(); all.Wait() })
		return l.Take()
	}
	t.Cleanup(func() { l.Stop() })
	return l
}

// read reads what createContent has written to a shard.
func read(ctx context.Context, l *framework.Load, shard string) {
	_ = l.Request(ctx, "read", "root:on-"+shard, nil, func(ctx context.Context, c dynamic.Interface) error {
		_, err := c.Resource(framework.ConfigMaps()).Namespace("default").Get(ctx, "data", metav1.GetOptions{})
		return err
	})
}

func write(ctx context.Context, l *framework.Load, shard string) {
	_ = l.Request(ctx, "write", "root:on-"+shard, nil, func(ctx context.Context, c dynamic.Interface) error {
		patch := fmt.Sprintf(`{"data":{"written":"%d"}}`, time.Now().UnixNano())
		_, err := c.Resource(framework.ConfigMaps()).Namespace("default").Patch(ctx, "data", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// create creates a workspace on a shard, uses it, and deletes it.
func create(ctx context.Context, l *framework.Load, shard string) {
	began := time.Now()
	name := fmt.Sprintf("load-%s-%d", shard, began.UnixNano())
	w := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"type":     map[string]any{"name": "universal", "path": "root"},
			"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"name": shard}}},
		},
	}}
	err := l.Request(ctx, "create a workspace", "root", nil, func(ctx context.Context, c dynamic.Interface) error {
		_, err := c.Resource(workspaces()).Create(ctx, w, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return
	}
	if becomesReady(ctx, l, name, began) {
		use(ctx, l, name, began, time.Now())
	}
	_ = l.Request(ctx, "delete a workspace", "root", nil, func(ctx context.Context, c dynamic.Interface) error {
		return c.Resource(workspaces()).Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// BecomesReady waits until a workspace is ready. A timeout counts as a failure.
func becomesReady(ctx context.Context, l *framework.Load, name string, began time.Time) bool {
	for ctx.Err() == nil {
		phase := ""
		_ = l.Request(ctx, "read a workspace", "root", nil, func(ctx context.Context, c dynamic.Interface) error {
			w, err := c.Resource(workspaces()).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			phase, _, err = unstructured.NestedString(w.Object, "status", "phase")
			return err
		})
		if phase == "Ready" {
			return true
		}
		if time.Since(began) > framework.ReadyPatience {
			l.Mu.Lock()
			l.Now.Fail(fmt.Sprintf("a workspace is %q after %s", phase, framework.ReadyPatience))
			l.Mu.Unlock()
			return false
		}
		time.Sleep(200 * time.Millisecond)
	}
	return false
}

// use lists the content of a new workspace. Front-proxies may take a moment to learn of it.
func use(ctx context.Context, l *framework.Load, name string, began, since time.Time) {
	unknown := func(err error) bool {
		return (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) && time.Since(since) < framework.KnownPatience
	}
	for ctx.Err() == nil {
		err := l.Request(ctx, "list", "root:"+name, unknown, func(ctx context.Context, c dynamic.Interface) error {
			_, err := c.Resource(framework.ConfigMaps()).Namespace("default").List(ctx, metav1.ListOptions{Limit: 1})
			return err
		})
		if err == nil {
			l.Mu.Lock()
			l.Now.Workspaces++
			l.Now.SlowestWorkspace = max(l.Now.SlowestWorkspace, time.Since(began))
			l.Mu.Unlock()
		}
		if err == nil || !unknown(err) {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}
