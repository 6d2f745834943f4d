package deploy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

// named has components whose clients dial them by name.
const named = runtest.Minimal + `spec:
  external: {hostname: kcp.example.com}
  rootShard: {url: "https://root.example.com:6443", expose: LoadBalancer}
  shards: [{name: alpha, url: "https://alpha.example.com:6443", expose: {type: Ingress, className: nginx}}]
  frontProxies: [{name: main, expose: LoadBalancer}]
`

// unnamed is a network in which only one name exists.
type unnamed struct{ known string }

func (n unnamed) LookupHost(_ context.Context, host string) ([]string, error) {
	if host != n.known {
		return nil, errors.New("no such host")
	}
	return []string{"192.0.2.1"}, nil
}

func (unnamed) DialTLS(context.Context, string, *tls.Config) (*tls.Conn, error) {
	return nil, errors.New("connection refused")
}

// Components wait for names that do not exist yet, so a run shows the records before it ends.
func TestRecordsAreShownDuringARun(t *testing.T) {
	inWorld(t, named, func(t *testing.T, w *world) {
		w.Up.Network = unnamed{"kcp.example.com"}
		w.Up.Options.Timeout = time.Minute
		start := time.Now()
		w.Runtime.Assigned = func(map[plan.Ref]plan.Item) map[topology.ID]run.Assigned {
			out := map[topology.ID]run.Assigned{
				"root-shard": {Hosts: []string{"203.0.113.7", "2001:db8::7"}}, "front-proxy/main": {Hosts: []string{"203.0.113.8"}},
			}
			if time.Since(start) > 20*time.Second {
				out["shard/alpha"] = run.Assigned{Hosts: []string{"lb.example.net"}}
			}
			return out
		}
		w.Runtime.States("shard/alpha", runtest.Waiting("no such host"))
		_, err := w.Run(t)
		require.ErrorContains(t, err, "no such host")
		var tables [][][]string
		for _, e := range w.Events {
			if len(e.Table) > 0 && e.Table[0][0] == "NAME" {
				tables = append(tables, e.Table[1:])
			}
		}
		require.Equal(t, [][][]string{
			{{"root.example.com.", "A", "203.0.113.7", "root-shard"}, {"root.example.com.", "AAAA", "2001:db8::7", "root-shard"}},
			{{"alpha.example.com.", "CNAME", "lb.example.net", "shard/alpha"}},
		}, tables, "each once, and none for a name that exists")

		w.Runtime.States("shard/alpha", ready.State{Ready: true, Replicas: 1, ReadyReplicas: 1})
		w.MustRun(t)
		for _, e := range w.Events {
			require.Empty(t, e.Table, "nothing waits")
		}
	})
}
