//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// requestPatience is the time limit of a successful request.
	requestPatience = 30 * time.Second
	// readyPatience is how long a workspace may take to become Ready: the next leader of kcp's controllers waits a
	// minute for the lease of the previous one (kcp: pkg/server/server.go, LeaseDuration).
	readyPatience = 3 * time.Minute
	// knownPatience is how long a front-proxy may take to learn of a Ready workspace: it watches the shards.
	knownPatience = 10 * time.Second
)

// load is a client that sends requests to kcp continuously, as controllers and users do, and counts failures.
type load struct {
	kubeconfig string
	dial       func(context.Context, string, string) (net.Conn, error)
	creates    bool
	stop       func() tally

	mu     sync.Mutex
	now    tally
	config *rest.Config
	client *http.Client
	made   time.Time // the modification time of the kubeconfig of the client
}

// tally counts the requests of a client.
type tally struct {
	requests, repeated, failed, workspaces int
	slowest, slowestWorkspace              time.Duration
	failures                               map[string]*failure
}

// failure counts one kind of failure.
type failure struct {
	times       int
	first, last time.Time
}

// String returns the counts for a report.
func (n tally) String() string {
	s := fmt.Sprintf("%d requests, %d failed, %d retried by the client library, slowest %.1fs",
		n.requests, n.failed, n.repeated, n.slowest.Seconds())
	if n.workspaces > 0 {
		s += fmt.Sprintf("; %d workspaces became Ready and were read, the slowest after %.0fs", n.workspaces, n.slowestWorkspace.Seconds())
	}
	for _, f := range slices.Sorted(maps.Keys(n.failures)) {
		s += fmt.Sprintf("\n  %d times from %s to %s: %s", n.failures[f].times,
			n.failures[f].first.Format(time.TimeOnly), n.failures[f].last.Format(time.TimeOnly), f)
	}
	return s
}

// fail counts a failure.
func (n *tally) fail(what string) {
	n.failed++
	if n.failures[what] == nil {
		n.failures[what] = &failure{first: time.Now()}
	}
	n.failures[what].times++
	n.failures[what].last = time.Now()
}

// The resources of the requests.
func configMaps() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
}

func workspaces() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}
}

// startLoad sends requests with a kubeconfig until stop is called. It reads the file again when it changes.
func startLoad(t *testing.T, kubeconfig string, dial func(context.Context, string, string) (net.Conn, error), creates bool) *load {
	t.Helper()
	l := &load{kubeconfig: kubeconfig, dial: dial, creates: creates, now: tally{failures: map[string]*failure{}}}
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
		every(100*time.Millisecond, func(ctx context.Context) { l.read(ctx, shard) })
		every(300*time.Millisecond, func(ctx context.Context) { l.write(ctx, shard) })
		if creates {
			every(time.Second, func(ctx context.Context) { l.create(ctx, shard) })
		}
	}
	var once sync.Once
	l.stop = func() tally {
		once.Do(func() { cancel(); all.Wait() })
		return l.take()
	}
	t.Cleanup(func() { l.stop() })
	return l
}

// take returns the counts since the last call.
func (l *load) take() tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.now
	l.now = tally{failures: map[string]*failure{}}
	return n
}

// connect returns a client of a workspace from the current kubeconfig.
func (l *load) connect(workspace string) (dynamic.Interface, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	info, err := os.Stat(l.kubeconfig)
	if err != nil {
		return nil, err
	}
	if l.client == nil || !info.ModTime().Equal(l.made) {
		config, err := clientcmd.BuildConfigFromFlags("", l.kubeconfig)
		if err != nil {
			return nil, err
		}
		config.Host, _, _ = strings.Cut(config.Host, "/clusters/")
		config.QPS, config.Timeout, config.Dial = -1, requestPatience, l.dial
		config.WarningHandler = rest.NoWarnings{}
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counter{next, l} })
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, err
		}
		l.config, l.client, l.made = config, client, info.ModTime()
	}
	config := rest.CopyConfig(l.config)
	config.Host += "/clusters/" + workspace
	return dynamic.NewForConfigAndClient(config, l.client)
}

// counter counts responses after which the client library retries.
type counter struct {
	next http.RoundTripper
	load *load
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err != nil && r.Context().Err() == nil || err == nil && resp.Header.Get("Retry-After") != "" {
		c.load.mu.Lock()
		c.load.now.repeated++
		c.load.mu.Unlock()
	}
	return resp, err
}

// request sends one request to a workspace and counts it. Accepted errors do not count as failures.
func (l *load) request(ctx context.Context, what, workspace string, accepted func(error) bool,
	do func(context.Context, dynamic.Interface) error) error {
	began := time.Now()
	client, err := l.connect(workspace)
	if err == nil {
		err = do(ctx, client)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now.requests++
	l.now.slowest = max(l.now.slowest, time.Since(began))
	if err != nil && (accepted == nil || !accepted(err)) {
		l.now.fail(what + " in " + workspace + ": " + err.Error())
	}
	return err
}

// read reads what createContent has written to a shard.
func (l *load) read(ctx context.Context, shard string) {
	_ = l.request(ctx, "read", "root:on-"+shard, nil, func(ctx context.Context, c dynamic.Interface) error {
		_, err := c.Resource(configMaps()).Namespace("default").Get(ctx, "data", metav1.GetOptions{})
		return err
	})
}

func (l *load) write(ctx context.Context, shard string) {
	_ = l.request(ctx, "write", "root:on-"+shard, nil, func(ctx context.Context, c dynamic.Interface) error {
		patch := fmt.Sprintf(`{"data":{"written":"%d"}}`, time.Now().UnixNano())
		_, err := c.Resource(configMaps()).Namespace("default").Patch(ctx, "data", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// create creates a workspace on a shard, uses it, and deletes it.
func (l *load) create(ctx context.Context, shard string) {
	began := time.Now()
	name := fmt.Sprintf("load-%s-%d", shard, began.UnixNano())
	w := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"type":     map[string]any{"name": "universal", "path": "root"},
			"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"name": shard}}},
		},
	}}
	err := l.request(ctx, "create a workspace", "root", nil, func(ctx context.Context, c dynamic.Interface) error {
		_, err := c.Resource(workspaces()).Create(ctx, w, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return
	}
	if l.becomesReady(ctx, name, began) {
		l.use(ctx, name, began, time.Now())
	}
	_ = l.request(ctx, "delete a workspace", "root", nil, func(ctx context.Context, c dynamic.Interface) error {
		return c.Resource(workspaces()).Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// becomesReady waits until a workspace is ready. A timeout counts as a failure.
func (l *load) becomesReady(ctx context.Context, name string, began time.Time) bool {
	for ctx.Err() == nil {
		phase := ""
		_ = l.request(ctx, "read a workspace", "root", nil, func(ctx context.Context, c dynamic.Interface) error {
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
		if time.Since(began) > readyPatience {
			l.mu.Lock()
			l.now.fail(fmt.Sprintf("a workspace is %q after %s", phase, readyPatience))
			l.mu.Unlock()
			return false
		}
		time.Sleep(200 * time.Millisecond)
	}
	return false
}

// use lists the content of a new workspace. Front-proxies may take a moment to learn of it.
func (l *load) use(ctx context.Context, name string, began, since time.Time) {
	unknown := func(err error) bool {
		return (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) && time.Since(since) < knownPatience
	}
	for ctx.Err() == nil {
		err := l.request(ctx, "list", "root:"+name, unknown, func(ctx context.Context, c dynamic.Interface) error {
			_, err := c.Resource(configMaps()).Namespace("default").List(ctx, metav1.ListOptions{Limit: 1})
			return err
		})
		if err == nil {
			l.mu.Lock()
			l.now.workspaces++
			l.now.slowestWorkspace = max(l.now.slowestWorkspace, time.Since(began))
			l.mu.Unlock()
		}
		if err == nil || !unknown(err) {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}
