package run_test

import (
	"iter"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const (
	minimal = topologytest.Header
	sharded = minimal + "spec: {shards: [{name: alpha}]}\n"
	// full has a component of every kind.
	full = minimal + `spec:
  cacheServer: {etcd: {managed: {}}}
  shards: [{name: alpha}, {name: beta, etcd: {embedded: {}}}]
  virtualWorkspaces: [{name: vw, shard: alpha}]
  kubeconfigs: [{name: admin}, {name: ops, clusterRoles: [view, edit], workspace: "root:team"}]
`
)

// everything may leave its data.
var everything = []topology.ID{"root-shard", "cache-server", "shard/alpha", "shard/beta", "etcd/root", "etcd/alpha", "etcd/beta", "etcd/cache"}

// TestMain trades memory for time: the tests render and issue certificates repeatedly.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}

// world is a setup, what it runs on and a run of it.
type world struct {
	top    *topology.Topology
	rt     *fakeruntime.Runtime
	up     *run.Up
	events []run.Event
	onEach func(run.Event)
	busy   atomic.Bool
}

// inWorld runs a test in a bubble: time passes only while all goroutines wait, so that patience and timeouts cost none.
func inWorld(t *testing.T, text string, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		top := topologytest.Build(t, text)
		test(t, newWorld(t, top, fakeruntime.New(t, top)))
	})
}

func newWorld(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) *world {
	w := &world{top: top, rt: rt, onEach: func(run.Event) {}}
	w.up = &run.Up{Topology: top, Runtime: rt, Setup: []byte("the setup"), Observe: w.observe(t), Now: time.Now, Network: fakeruntime.Network{}}
	return w
}

// observe notes events, and that they come one at a time.
func (w *world) observe(t *testing.T) run.Observer {
	return func(e run.Event) {
		if !w.busy.CompareAndSwap(false, true) {
			t.Errorf("event %+v comes while the observer is busy", e)
		}
		runtime.Gosched()
		w.events = append(w.events, e)
		w.onEach(e)
		w.busy.Store(false)
	}
}

// run runs Up again, and forgets what happened before.
func (w *world) run(t *testing.T) (*run.Result, error) {
	t.Helper()
	w.rt.Forget()
	w.events = nil
	return w.up.Run(t.Context())
}

// mustRun brings the setup up.
func (w *world) mustRun(t *testing.T) *run.Result {
	t.Helper()
	res, err := w.run(t)
	require.NoError(t, err)
	return res
}

// of are the events of a component or step as "status message".
func (w *world) of(name string) []string {
	var out []string
	for _, e := range w.events {
		if e.Name == name {
			out = append(out, strings.TrimSpace(string(e.Status)+" "+e.Message))
		}
	}
	return out
}

// in are the steps and components whose last event has a status.
func (w *world) in(s run.Status) []string {
	last := map[string]run.Status{}
	for _, e := range w.events {
		last[e.Name] = e.Status
	}
	maps.DeleteFunc(last, func(_ string, is run.Status) bool { return is != s })
	return slices.Sorted(maps.Keys(last))
}

// when is the place of an event among all; -1 if it did not happen.
func (w *world) when(id topology.ID, s run.Status, message string) int {
	return slices.IndexFunc(w.events, func(e run.Event) bool {
		return e.Name == string(id) && e.Status == s && strings.HasPrefix(e.Message, message)
	})
}

func waiting(reason string) ready.State { return ready.State{Replicas: 1, Reason: reason} }

func isReady() ready.State { return ready.State{Ready: true, Replicas: 1, ReadyReplicas: 1} }

// requireError wants an error as users see it.
func requireError(t *testing.T, err error, code int, message string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, message, err.Error())
	require.Equal(t, code, clierr.Code(err))
}

// filter are the lines that begin with a word.
func filter(lines []string, word string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, l := range lines {
			if strings.HasPrefix(l, word) && !yield(l) {
				return
			}
		}
	}
}
