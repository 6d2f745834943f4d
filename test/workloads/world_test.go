package workloads_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
)

// The paths of resources.
const (
	deployments  = "apis/apps/v1/deployments"
	statefulSets = "apis/apps/v1/statefulsets"
	services     = "api/v1/services"
	configMaps   = "api/v1/configmaps"
	secrets      = "api/v1/secrets"
	namespaces   = "api/v1/namespaces"
	nodes        = "api/v1/nodes"
	podObjects   = "api/v1/pods"
	claims       = "api/v1/persistentvolumeclaims"
	policies     = "apis/networking.k8s.io/v1/networkpolicies"
	clusters     = "apis/workloads.kcp.dev/v1alpha1/clusters"
	leases       = "apis/coordination.k8s.io/v1/leases"
	exports      = "apis/apis.kcp.io/v1alpha2/apiexports"
	bindings     = "apis/apis.kcp.io/v1alpha2/apibindings"
	slicesPath   = "apis/apis.kcp.io/v1alpha1/apiexportendpointslices"
)

// computePath is the path of the compute workspace.
const computePath = "root:compute"

// world is kcp, the physical clusters, and the processes. The lock guards all fields, and is taken before those of the
// servers.
type world struct {
	log func(format string, args ...any)

	mu sync.Mutex
	// kcp is the server of all workspaces, and compute the logical cluster of the compute workspace.
	kcp      *fakeapi.Server
	compute  string
	computes int
	// recorded is the ID of the setup that kcpctl up keeps. Empty: it is the logical cluster of the compute workspace.
	recorded string
	// down means that kcp does not answer.
	down  bool
	sites []*site
	// controller is the process of the controller, or nil, and syncers are those of clusters that it does not connect
	// to.
	controller *process
	syncers    map[string]*process
	processes  int
	snapshot   *backup
	// planted is the defect that the rules must find, or nil.
	planted *defect
	model

	queue   events
	stopped chan struct{}
	stop    chan struct{}
}

// events are changes of all servers, for the goroutine that simulates pods and checks rules.
type events struct {
	mu   sync.Mutex
	all  []event
	wake chan struct{}
}

type event struct {
	site *site // nil: kcp
	fakeapi.Event
	at time.Time
}

func (q *events) add(e event) {
	q.mu.Lock()
	q.all = append(q.all, e)
	q.mu.Unlock()
	q.poke()
}

func (q *events) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *events) take() []event {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.all
	q.all = nil
	return out
}

func newWorld() *world {
	w := &world{
		kcp: fakeapi.NewMemory("kcp"), syncers: map[string]*process{}, model: newModel(), queue: events{wake: make(chan struct{}, 1)},
		stopped: make(chan struct{}), stop: make(chan struct{}),
	}
	w.kcp.Tell(func(e fakeapi.Event) { w.queue.add(event{nil, e, time.Now()}) })
	return w
}

// begin makes workspaces and clusters, and starts the controller.
func (w *world) begin(n int) {
	go w.simulate()
	w.makeCompute()
	for _, name := range workspaceNames {
		w.bind(name)
	}
	for i := range siteNames {
		w.addSite(siteNames[i])
	}
	for i := range n {
		w.register(clusterNames[i], w.sites[i], "Push", "baseline")
	}
	w.start()
	for range 20 {
		time.Sleep(5 * time.Second)
		if w.ready() == n {
			return
		}
	}
	w.violate("ready", "the clusters are not ready %s after the start", "100s")
}

// end stops everything.
func (w *world) end() {
	for _, p := range w.running() {
		p.cancel()
		w.breakLinks(func(l *link) bool { return l.process == p })
	}
	for _, p := range w.running() {
		<-p.done
	}
	close(w.stop)
	<-w.stopped
	time.Sleep(10 * time.Minute) // timers of clients
}

func (w *world) running() (out []*process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.controller != nil {
		out = append(out, w.controller)
	}
	for _, name := range sortedKeys(w.syncers) {
		out = append(out, w.syncers[name])
	}
	return out
}

// lines are the log. Any goroutine can add to it.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (w *world) logf(format string, args ...any) {
	line := time.Now().UTC().Format("15:04:05.000") + "  " + fmt.Sprintf(format, args...)
	if *told {
		fmt.Println(line)
		return
	}
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	w.lines.all = append(w.lines.all, line)
}

// printLines prints the log since the last call.
func (w *world) printLines() {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	for _, l := range w.lines.all {
		w.log("%s", l)
	}
	w.lines.all = nil
}

// process is a process that runs.
type process struct {
	name   string
	dead   bool // its requests fail
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
}

// link is a connection from a process to a server.
type link struct {
	*fakeapi.Transport
	process *process
	site    *site // of the server, or of the process if the server is kcp
	toKCP   bool
}

var (
	errRefused = errors.New("connect: connection refused")
	errSilent  = errors.New("i/o timeout")
)

// latency is how long a request takes.
const latency = 2 * time.Millisecond

// connect returns how a process reaches a server: kcp, or that of a site. A syncer reaches kcp from its site.
func (w *world) connect(p *process, s *site, toKCP bool) *rest.Config {
	server := w.kcp
	if !toKCP {
		server = s.server
	}
	for _, known := range w.linksOf(p) {
		if known.site == s && known.toKCP == toKCP {
			return &rest.Config{Host: server.URL, Transport: known}
		}
	}
	l := &link{Transport: &fakeapi.Transport{Server: server}, process: p, site: s, toKCP: toKCP}
	l.Before = func(r *http.Request) error { return w.before(l, r) }
	w.mu.Lock()
	w.links = append(w.links, l)
	w.mu.Unlock()
	return &rest.Config{Host: server.URL, Transport: l}
}

// linksOf returns the links of a process.
func (w *world) linksOf(p *process) (out []*link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.links {
		if l.process == p {
			out = append(out, l)
		}
	}
	return out
}

// before lets a request wait, or fail.
func (w *world) before(l *link, r *http.Request) error {
	w.mu.Lock()
	w.requests++
	w.count(l, r)
	w.mu.Unlock()
	for waited := latency; ; waited = time.Second {
		select {
		case <-r.Context().Done():
			return r.Context().Err()
		case <-time.After(waited):
		}
		w.mu.Lock()
		err := w.broken(l)
		if err == nil && w.planted != nil && w.planted.drops != nil && w.planted.drops(w, l, r) {
			err = errRefused
		}
		w.mu.Unlock()
		if !errors.Is(err, errSilent) {
			return err
		}
	}
}

// broken returns why a link does not work. The world is locked.
func (w *world) broken(l *link) error {
	s := l.site
	switch {
	case l.process.dead || l.toKCP && w.down || s != nil && s.dead || s != nil && !l.toKCP && s.down:
		return errRefused
	case s != nil && s.cut != "" && l.crosses():
		if s.cut == "silent" {
			return errSilent
		}
		return errRefused
	}
	return nil
}

// crosses reports whether a link leads from a site to kcp, or back.
func (l *link) crosses() bool { return l.toKCP || !strings.HasPrefix(l.process.name, "syncer") }

// breakLinks ends the watches of links.
func (w *world) breakLinks(match func(*link) bool) {
	w.mu.Lock()
	var out []*link
	for _, l := range w.links {
		if match(l) {
			out = append(out, l)
		}
	}
	w.mu.Unlock()
	for _, l := range out {
		l.Break()
	}
}

// breakBroken ends the watches of links that do not work.
func (w *world) breakBroken() {
	w.breakLinks(func(l *link) bool { return w.broken(l) != nil })
}

// object returns a JSON object from YAML-like text.
func object(format string, args ...any) map[string]any {
	return fakeapi.Object(fmt.Sprintf(format, args...))
}

func sortedKeys[V any](m map[string]V) []string { return fakeapi.SortedKeys(m) }

// number returns a number of an object, or zero.
func number(o *unstructured.Unstructured, path ...string) int {
	if o == nil {
		return 0
	}
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	switch n := v.(type) {
	case float64:
		return int(n)
	case int64:
		return int(n)
	}
	return 0
}

func text(o *unstructured.Unstructured, path ...string) string {
	if o == nil {
		return ""
	}
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

func encoded(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

// quiet makes client-go silent.
func quiet(t *testing.T) {
	t.Helper()
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	_ = fs.Set("logtostderr", "false")
	_ = fs.Set("alsologtostderr", "false")
	_ = fs.Set("stderrthreshold", "FATAL")
	klog.SetOutput(io.Discard)
	klog.SetLogger(logr.Discard())
	// One of them waits since the last error, which is years away in a bubble.
	before := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = before })
}
