package deploy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

// with is the state of a component that is ready, with pods.
func with(pods map[string]bool) ready.State {
	s := runtest.IsReady()
	s.Pods = pods
	return s
}

// A shard that is changed is led by a pod that stays, by one that leaves, or by none. Only from a pod that has left the
// lead is taken: the next one need not wait for the end of its lease.
func TestUpHandsLeadershipOver(t *testing.T) {
	leaves, left := with(map[string]bool{"old": false, "new": true}), with(map[string]bool{"new": true})
	for name, tc := range map[string]struct {
		leader, next, after string
		states              []ready.State
		events              []string
	}{
		"it leaves": {"old", "new", "new", []ready.State{leaves, leaves, leaves, left},
			[]string{"running old is terminating", "running old is gone", "done new"}},
		"it has left":  {"old", "new", "new", []ready.State{left}, []string{"running old is gone", "done new"}},
		"it stays":     {"new", "", "new", []ready.State{leaves}, nil},
		"none leads":   {"", "", "", []ready.State{leaves}, nil},
		"no elections": {"none", "", "none", []ready.State{leaves}, nil},
		"another that leaves is next": {"older", "old", "old", []ready.State{leaves}, []string{"running older is gone",
			"running old is terminating", "done old is terminating; the next leader starts when its lease ends"}},
		"it never leaves": {"old", "", "old", []ready.State{leaves},
			[]string{"running old is terminating", "done old is terminating; the next leader starts when its lease ends"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Full, func(t *testing.T, w *world) {
				w.MustRun(t)
				w.Runtime.Kcp.Lead("shard/beta", "other", "")
				if tc.leader != "none" {
					w.Runtime.Kcp.Lead("shard/alpha", tc.leader, tc.next)
				}
				w.Runtime.States("shard/alpha", tc.states...)
				w.Runtime.Edit("Deployment/kcp/demo-shard-alpha", func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"edited": "yes"}) })
				w.MustRun(t)
				require.Equal(t, strings.TrimPrefix(tc.after, "none"), w.Runtime.Kcp.Leader("shard/alpha"))
				require.Equal(t, tc.events, w.Of("leader of shard/alpha"))
				require.Equal(t, "other", w.Runtime.Kcp.Leader("shard/beta"), "a shard that is not changed is left alone")
			})
		})
	}
}

// After kcpctl down the lease of the last leader is still held, for a minute.
func TestUpTakesTheLeadFromBeforeADown(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.Runtime.Kcp.Lead("shard/alpha", "old", "new")
		w.Runtime.States("shard/alpha", with(map[string]bool{"new": true}))
		w.MustRun(t)
		require.Equal(t, []string{"running old is gone", "done new"}, w.Of("leader of shard/alpha"))
		require.Equal(t, "new", w.Runtime.Kcp.Leader("shard/alpha"))
	})
}

// The host has another name than the pod with spec.hostname or hostNetwork, or if the name of the pod is longer than 63
// characters.
func TestUpLeavesALeaderThatRenewsItsLease(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.Runtime.Kcp.Lead("shard/alpha", "host", "other")
		w.Runtime.Kcp.Renew("shard/alpha")
		w.Runtime.States("shard/alpha", with(map[string]bool{"pod": true}))
		w.MustRun(t)
		require.Equal(t, "host", w.Runtime.Kcp.Leader("shard/alpha"))
		require.Empty(t, w.Of("leader of shard/alpha"))
	})
}

// A shard with an etcd in its own process has one replica, which always leads.
func TestUpAsksOnlyWhereThereIsALeader(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.MustRun(t)
		var asked []string
		for _, r := range w.Runtime.Kcp.Requests(fakekcp.GetLease) {
			asked = append(asked, r.Server)
		}
		require.ElementsMatch(t, []string{"root-shard", "shard/alpha"}, asked)
	})
}
