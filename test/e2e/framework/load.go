package framework

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
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// requestPatience is the time limit of a successful request.
	requestPatience = 30 * time.Second
	// ReadyPatience is how long a workspace may take to become Ready: the next leader of kcp's controllers waits a
	// minute for the lease of the previous one (kcp: pkg/server/server.go, LeaseDuration).
	ReadyPatience = 3 * time.Minute
	// KnownPatience is how long a front-proxy may take to learn of a Ready workspace: it watches the shards.
	KnownPatience = 10 * time.Second
)

// Load is a client that sends requests to kcp continuously, as controllers and users do, and counts failures.
type Load struct {
	Kubeconfig string
	Dial       func(context.Context, string, string) (net.Conn, error)
	Creates    bool
	Stop       func() Tally

	Mu     sync.Mutex
	Now    Tally
	config *rest.Config
	client *http.Client
	made   time.Time // the modification time of the kubeconfig of the client
}

// Tally counts the requests of a client.
type Tally struct {
	Requests, repeated, Failed, Workspaces int
	slowest, SlowestWorkspace              time.Duration
	Failures                               map[string]*Failure
}

// Failure counts one kind of failure.
type Failure struct {
	times       int
	first, last time.Time
}

// String returns the counts for a report.
func (n Tally) String() string {
	s := fmt.Sprintf("%d requests, %d failed, %d retried by the client library, slowest %.1fs",
		n.Requests, n.Failed, n.repeated, n.slowest.Seconds())
	if n.Workspaces > 0 {
		s += fmt.Sprintf("; %d workspaces became Ready and were read, the slowest after %.0fs", n.Workspaces, n.SlowestWorkspace.Seconds())
	}
	for _, f := range slices.Sorted(maps.Keys(n.Failures)) {
		s += fmt.Sprintf("\n  %d times from %s to %s: %s", n.Failures[f].times,
			n.Failures[f].first.Format(time.TimeOnly), n.Failures[f].last.Format(time.TimeOnly), f)
	}
	return s
}

// Fail counts a failure.
func (n *Tally) Fail(what string) {
	n.Failed++
	if n.Failures[what] == nil {
		n.Failures[what] = &Failure{first: time.Now()}
	}
	n.Failures[what].times++
	n.Failures[what].last = time.Now()
}

// The resources of the requests.
func ConfigMaps() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
}

// Take returns the counts since the last call.
func (l *Load) Take() Tally {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	n := l.Now
	l.Now = Tally{Failures: map[string]*Failure{}}
	return n
}

// Connect returns a client of a workspace from the current kubeconfig.
func (l *Load) Connect(workspace string) (dynamic.Interface, error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	info, err := os.Stat(l.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if l.client == nil || !info.ModTime().Equal(l.made) {
		config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
		if err != nil {
			return nil, err
		}
		config.Host, _, _ = strings.Cut(config.Host, "/clusters/")
		config.QPS, config.Timeout, config.Dial = -1, requestPatience, l.Dial
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
	load *Load
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err != nil && r.Context().Err() == nil || err == nil && resp.Header.Get("Retry-After") != "" {
		c.load.Mu.Lock()
		c.load.Now.repeated++
		c.load.Mu.Unlock()
	}
	return resp, err
}

// Request sends one request to a workspace and counts it. Accepted errors do not count as failures.
func (l *Load) Request(ctx context.Context, what, workspace string, accepted func(error) bool,
	do func(context.Context, dynamic.Interface) error) error {
	began := time.Now()
	client, err := l.Connect(workspace)
	if err == nil {
		err = do(ctx, client)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.Now.Requests++
	l.Now.slowest = max(l.Now.slowest, time.Since(began))
	if err != nil && (accepted == nil || !accepted(err)) {
		l.Now.Fail(what + " in " + workspace + ": " + err.Error())
	}
	return err
}
