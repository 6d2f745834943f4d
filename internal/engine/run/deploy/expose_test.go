package deploy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// assigning has a load balancer and a node port whose addresses the cluster assigns.
const assigning = runtest.Minimal + `spec:
  external: {hostname: auto}
  frontProxies: [{name: main, expose: LoadBalancer}]
  shards: [{name: alpha, url: auto, expose: NodePort}]
`

// cloud assigns addresses to Services that exist.
type cloud struct {
	balancer string
	port     int32
}

func (c *cloud) assign(live map[plan.Ref]plan.Item) map[topology.ID]run.Assigned {
	out := map[topology.ID]run.Assigned{
		"front-proxy/main": {Reason: "no Service"}, "shard/alpha": {Hosts: []string{"192.0.2.1", "192.0.2.2"}, Reason: "no Service"},
	}
	for ref, it := range live {
		switch a := out[it.Component]; {
		case ref.Kind != "Service" || a.Reason == "":
		case it.Component == "shard/alpha":
			a.Port, a.Reason = c.port, ""
			out[it.Component] = a
		case c.balancer == "":
			out[it.Component] = run.Assigned{Reason: "no load balancer yet"}
		default:
			out[it.Component] = run.Assigned{Hosts: []string{c.balancer}}
		}
	}
	return out
}

// at continues with the addresses that are known, as another run would.
func (w *world) at(t *testing.T, text string, known topology.Addresses) *world {
	t.Helper()
	top := topology.BuildAt(topologytest.Setup(t, text), known)
	w.Runtime.Use(top)
	next := newWorld(t, top, w.Runtime)
	next.Up.Options = w.Up.Options
	return next
}

func (w *world) known(t *testing.T) topology.Addresses {
	t.Helper()
	known, err := deploy.KnownAddresses(t.Context(), w.Runtime, w.Topology)
	require.NoError(t, err)
	return known
}

// Services come first, everything else when their addresses are assigned.
func TestAddressesAreAssigned(t *testing.T) {
	inWorld(t, assigning, func(t *testing.T, w *world) {
		c := &cloud{port: 31443}
		w.Runtime.Assigned = c.assign
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, "the address of shard/alpha is assigned by its cluster, and is not known yet")
		require.Empty(t, w.Runtime.Calls(), "nothing is written")

		w.OnEach = func(e run.Event) {
			if e.Message == "front-proxy/main: no load balancer yet" {
				c.balancer = "203.0.113.7"
			}
		}
		known, err := w.Up.Expose(t.Context())
		require.NoError(t, err)
		require.Equal(t, topology.Addresses{
			"front-proxy/main": {Host: "203.0.113.7"}, "shard/alpha": {Host: "192.0.2.1", Port: 31443},
		}, known)
		require.Equal(t, []string{"Apply namespaces", "Lock", "Begin", "Apply shard/alpha", "Unlock"}, w.Runtime.Calls())
		require.Equal(t, []string{"running", "running front-proxy/main: no load balancer yet", "done 2 addresses are assigned"}, w.Of("addresses"))

		w = w.at(t, assigning, known)
		w.MustRun(t)
		require.Equal(t, "https://192.0.2.1:31443", w.Topology.Component("shard/alpha").URL)
		require.Equal(t, "https://203.0.113.7:6443", w.Topology.Root().ExternalURL)
		require.Contains(t, w.Topology.Component("shard/alpha").Hosts(), "192.0.2.1")
		rec, err := w.Runtime.Record(t.Context())
		require.NoError(t, err)
		require.Equal(t, known, rec.Addresses)

		// The next run finds everything as it is. Another address of the load balancer is a change.
		w = w.at(t, assigning, w.known(t))
		require.True(t, w.MustRun(t).Plan.Empty())
		c.balancer = "203.0.113.8"
		w = w.at(t, assigning, w.known(t))
		require.False(t, w.MustRun(t).Plan.Empty())
		require.Contains(t, w.Of(""), "front-proxy/main: its address changes from 203.0.113.7 to 203.0.113.8")
	})
}

// After down, the same node port and the same node are asked for. A load balancer is a new one.
func TestNodePortsAreKept(t *testing.T) {
	inWorld(t, assigning, func(t *testing.T, w *world) {
		c := &cloud{port: 31443, balancer: "203.0.113.7"}
		w.Runtime.Assigned = c.assign
		known, err := w.Up.Expose(t.Context())
		require.NoError(t, err)
		w = w.at(t, assigning, known)
		w.MustRun(t)
		require.NoError(t, (&deploy.Down{Runtime: w.Runtime, Observe: w.Observe(t), Now: time.Now}).Run(t.Context()))

		c.port, c.balancer = 0, ""
		w = w.at(t, assigning, w.known(t))
		require.Equal(t, "https://192.0.2.1:31443", w.Topology.Component("shard/alpha").URL)
		require.EqualValues(t, 31443, w.Topology.Component("shard/alpha").NodePort)
		require.Equal(t, "https://203.0.113.7:6443", w.Topology.Root().ExternalURL, "the recorded one, until there is a new one")
		w.Up.Options.Timeout = time.Minute
		_, err = w.Up.Expose(t.Context())
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		require.ErrorContains(t, err, "no address was assigned within 1m0s: front-proxy/main: no load balancer yet")
		c.balancer = "203.0.113.9"
		known, err = w.Up.Expose(t.Context())
		require.NoError(t, err, "the next run continues to wait")
		require.Equal(t, "203.0.113.9", known["front-proxy/main"].Host)
	})
}

// Certificates are renewed and rotated with the recorded addresses, without a wait for a load balancer that has none;
// without a recorded one that fails at once.
func TestCertificatesWaitForNoAddress(t *testing.T) {
	inWorld(t, assigning, func(t *testing.T, w *world) {
		c := &cloud{port: 31443, balancer: "203.0.113.7"}
		w.Runtime.Assigned = c.assign
		known, err := w.Up.Expose(t.Context())
		require.NoError(t, err)
		w = w.at(t, assigning, known)
		w.MustRun(t)

		c.balancer = ""
		w = w.at(t, assigning, w.known(t))
		w.Up.Options.Unedited, w.Up.Options.Renew = w.Up.Setup, func(pki.Cert) bool { return true }
		w.Runtime.Forget()
		again, err := w.Up.Expose(t.Context())
		require.NoError(t, err)
		require.Equal(t, known, again)
		require.Empty(t, w.Runtime.Calls())
		require.NotZero(t, w.MustRun(t).PKI.Renewed())

		never := w.at(t, assigning, nil)
		never.Up.Options.Unedited = w.Up.Setup
		rotate := &deploy.RotateCAs{Rotate: deploy.Rotate{
			Rotations: pki.Rotations{pki.RotationOf(topology.ServerCA)}, Topology: never.Topology, Store: never.Runtime.Store(), Up: never.Up, Now: time.Now,
			Begin: func(string) func() { return func() {} },
		}}
		_, err = rotate.Run(t.Context())
		runtest.RequireError(t, err, clierr.Failed, "the address of shard/alpha is assigned by its cluster, and is not known yet")
	})
}

// An interruption leaves nothing that the next run does not know.
func TestInterruptedExpose(t *testing.T) {
	for _, at := range []string{"Begin", "Apply shard/alpha"} {
		inWorld(t, assigning, func(t *testing.T, w *world) {
			w.Runtime.Assigned = (&cloud{port: 31443, balancer: "203.0.113.7"}).assign
			w.Runtime.On(at, func() error { return context.Canceled })
			_, err := w.Up.Expose(t.Context())
			require.ErrorIs(t, err, context.Canceled)
			w.Runtime.On(at, nil)
			known, err := w.Up.Expose(t.Context())
			require.NoError(t, err)
			w = w.at(t, assigning, known)
			w.MustRun(t)
		})
	}
}

// What refuses a run refuses it before a Service exists.
func TestExposeRefusesWhatUpRefuses(t *testing.T) {
	inWorld(t, assigning, func(t *testing.T, w *world) {
		w.Runtime.Assigned = (&cloud{}).assign
		boom := errors.New("boom")
		w.Runtime.On("Plan", func() error { return boom })
		_, err := w.Up.Expose(t.Context())
		require.ErrorIs(t, err, boom)
		require.Empty(t, w.Runtime.Calls())
		w.Runtime.On("Plan", nil)
		w.Up.Options.DryRun = true
		_, err = w.Up.Expose(t.Context())
		require.NoError(t, err)
		require.Empty(t, w.Runtime.Calls())
	})
}

// assigningFar has a node port on another cluster.
const assigningFar = runtest.Minimal + `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards: [{name: alpha, cluster: us, url: auto, expose: NodePort}]
  frontProxies: [{name: main, cluster: eu}]
`

// The addresses on a cluster that cannot be reached are those of the record.
func TestRecordedAddressesAreUsedWithoutTheirCluster(t *testing.T) {
	inWorld(t, assigningFar, func(t *testing.T, w *world) {
		c := &cloud{port: 31443}
		asked := false
		w.Runtime.Assigned = func(live map[plan.Ref]plan.Item) map[topology.ID]run.Assigned { asked = true; return c.assign(live) }
		w.Lose("us")
		_, err := deploy.KnownAddresses(t.Context(), w.Runtime, w.Topology)
		require.EqualError(t, err, "the address of shard/alpha is not known: "+runtest.ErrCut.Error())

		w.Lose("")
		known, err := w.Up.Expose(t.Context())
		require.NoError(t, err)
		w = w.at(t, assigningFar, known)
		w.MustRun(t)

		w.Lose("us")
		c.port = 0
		require.True(t, asked)
		require.Equal(t, topology.Addresses{"shard/alpha": {Host: "192.0.2.1", Port: 31443}}, w.known(t))
	})
}
