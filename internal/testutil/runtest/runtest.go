// Package runtest brings up setups on a simulated runtime, for tests of runs.
package runtest

import (
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// Setups to begin with.
const (
	Minimal = topologytest.Header
	Sharded = Minimal + "spec: {shards: [{name: alpha}]}\n"
	// Full has a component of every kind.
	Full = Minimal + `spec:
  cacheServer: {etcd: {managed: {}}}
  shards: [{name: alpha}, {name: beta, etcd: {embedded: {}}}]
  virtualWorkspaces: [{name: vw, shard: alpha}]
  kubeconfigs: [{name: admin}, {name: ops, clusterRoles: [view, edit], workspace: "root:team"}]
`
)

// Everything has all components of Full with data, for runs that may leave it.
var Everything = []topology.ID{"root-shard", "cache-server", "shard/alpha", "shard/beta", "etcd/root", "etcd/alpha", "etcd/beta", "etcd/cache"}

// World is a setup, what it runs on and a run of it.
type World struct {
	Topology *topology.Topology
	Runtime  *fakeruntime.Runtime
	Up       *deploy.Up
	Events   []run.Event
	OnEach   func(run.Event)
	busy     atomic.Bool
}

// In runs a test in a bubble: time passes only while all goroutines wait, so that patience and timeouts cost none.
func In(t *testing.T, text string, test func(t *testing.T, w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		top := topologytest.Build(t, text)
		test(t, New(t, top, fakeruntime.New(t, top)))
	})
}

// New returns a setup that does not run yet, and the Up that deploys it.
func New(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) *World {
	w := &World{Topology: top, Runtime: rt, OnEach: func(run.Event) {}}
	w.Up = &deploy.Up{Topology: top, Runtime: rt, Setup: []byte("the setup"), Observe: w.Observe(t), Now: time.Now, Network: fakeruntime.Network{}}
	return w
}

// Observe keeps events, and fails if they do not come one at a time.
func (w *World) Observe(t *testing.T) run.Observer {
	return func(e run.Event) {
		if !w.busy.CompareAndSwap(false, true) {
			t.Errorf("event %+v comes while the observer is busy", e)
		}
		runtime.Gosched()
		w.Events = append(w.Events, e)
		w.OnEach(e)
		w.busy.Store(false)
	}
}

// Run runs Up again, and forgets what happened before.
func (w *World) Run(t *testing.T) (*deploy.Result, error) {
	t.Helper()
	w.Runtime.Forget()
	w.Events = nil
	return w.Up.Run(t.Context())
}

// MustRun brings the setup up.
func (w *World) MustRun(t *testing.T) *deploy.Result {
	t.Helper()
	res, err := w.Run(t)
	require.NoError(t, err)
	return res
}

// Of returns the events of a component or step as "status message".
func (w *World) Of(name string) []string {
	var out []string
	for _, e := range w.Events {
		if e.Name == name {
			out = append(out, strings.TrimSpace(string(e.Status)+" "+e.Message))
		}
	}
	return out
}

// In returns the steps and components whose last event has a status.
func (w *World) In(s run.Status) []string {
	last := map[string]run.Status{}
	for _, e := range w.Events {
		last[e.Name] = e.Status
	}
	maps.DeleteFunc(last, func(_ string, is run.Status) bool { return is != s })
	return slices.Sorted(maps.Keys(last))
}

// When returns the place of an event among all; -1 if it did not happen.
func (w *World) When(id topology.ID, s run.Status, message string) int {
	return slices.IndexFunc(w.Events, func(e run.Event) bool {
		return e.Name == string(id) && e.Status == s && strings.HasPrefix(e.Message, message)
	})
}

// Waiting is the state of a component that is not ready for a reason.
func Waiting(reason string) ready.State { return ready.State{Replicas: 1, Reason: reason} }

// IsReady is the state of a component that is ready.
func IsReady() ready.State { return ready.State{Ready: true, Replicas: 1, ReadyReplicas: 1} }

// RequireError requires an error as users see it.
func RequireError(t *testing.T, err error, code int, message string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, message, err.Error())
	require.Equal(t, code, clierr.Code(err))
}

// Filter returns the lines that begin with a word.
func Filter(lines []string, word string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, l := range lines {
			if strings.HasPrefix(l, word) && !yield(l) {
				return
			}
		}
	}
}

const TwoShards = Minimal + "spec: {shards: [{name: alpha}, {name: beta}]}\n"

// TwoClusters has the shard beta, and a front-proxy, on us.
const TwoClusters = Minimal + `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards:
  - {name: alpha, url: "https://alpha.example.com:6443"}
  - {name: beta, cluster: us, url: "https://beta.example.com:6443"}
  frontProxies: [{name: edge, cluster: us}, {name: main, cluster: eu}]
`

var ErrCut = clierr.New(clierr.Failed, "check the network", "the API server of us does not answer")

// Lose makes a cluster unreachable; without a name all are reached again.
func (w *World) Lose(cluster string) {
	w.Runtime.Lost = nil
	if cluster != "" {
		w.Runtime.Lost = []plan.Unreachable{{Cluster: cluster, Err: ErrCut}}
	}
}

// Notes returns the remarks of the last run.
func (w *World) Notes() []string {
	var out []string
	for _, e := range w.Events {
		if e.Scope == run.Note {
			out = append(out, e.Message)
		}
	}
	return out
}

// File continues with another setup file.
func (w *World) File(t *testing.T, text string) {
	t.Helper()
	top := topologytest.Build(t, text)
	w.Runtime.Use(top)
	w.Topology, w.Up.Topology = top, top
}

// Unapplied returns what a setup file would change.
func (w *World) Unapplied(t *testing.T, top *topology.Topology, text string) *plan.Plan {
	t.Helper()
	p, err := deploy.Unapplied(t.Context(), top, w.Runtime, []byte(text), nil, time.Now(), nil)
	require.NoError(t, err)
	return p
}
