package check_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/engine/run/shards"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
)

// world is a setup that is up and well, until a test breaks something.
type world struct {
	top *topology.Topology
	rt  *fakeruntime.Runtime
	net *network
	now time.Time
}

// network is a machine on which kcp.example.com leads where a test wants it to.
type network struct {
	dial func(ctx context.Context, c *tls.Config) (*tls.Conn, error)
}

func (n *network) LookupHost(_ context.Context, host string) ([]string, error) {
	if host != "kcp.example.com" {
		return nil, fmt.Errorf("lookup %s: no such host", host)
	}
	return []string{"192.0.2.1"}, nil
}

func (n *network) DialTLS(ctx context.Context, _ string, c *tls.Config) (*tls.Conn, error) {
	return n.dial(ctx, c)
}

// leads makes the address lead to a component.
func (w *world) leads(to topology.ID) {
	w.net.dial = func(ctx context.Context, c *tls.Config) (*tls.Conn, error) {
		conn, err := w.rt.Dial(ctx, w.top.Component(to))
		if err != nil {
			return nil, err
		}
		client := tls.Client(conn, c)
		return client, client.HandshakeContext(ctx)
	}
}

// terminates makes the address lead to a proxy with a certificate of its own, and returns the authority of that.
func (w *world) terminates(t *testing.T) (ca []byte) {
	other := pkitest.Issue(t, w.top, time.Now())
	leaf := other.Leaves[pki.KeyOf(w.top.FrontProxies()[0], topology.CertServer)]
	pair, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	require.NoError(t, err)
	w.net.dial = func(ctx context.Context, c *tls.Config) (*tls.Conn, error) {
		near, far := net.Pipe()
		go func() { _ = tls.Server(far, &tls.Config{Certificates: []tls.Certificate{pair}}).HandshakeContext(ctx) }()
		client := tls.Client(near, c)
		return client, client.HandshakeContext(ctx)
	}
	return other.CAs[topology.ServerCA].Trusted()
}

// measures makes the address lead to a front-proxy that answers everybody.
func (w *world) measures(t *testing.T) {
	leaf := w.rt.PKI().Leaves[pki.KeyOf(w.top.FrontProxies()[0], topology.CertServer)]
	pair, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	require.NoError(t, err)
	w.net.dial = func(ctx context.Context, c *tls.Config) (*tls.Conn, error) {
		near, far := net.Pipe()
		go func() {
			server := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{pair}})
			if req, err := http.ReadRequest(bufio.NewReader(server)); err == nil && req.URL.Path == "/metrics" {
				_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
			_ = server.Close()
		}()
		client := tls.Client(near, c)
		return client, client.HandshakeContext(ctx)
	}
}

const (
	exports   = "apis/apis.kcp.io/v1alpha1/apiexports"
	schemas   = "apis/apis.kcp.io/v1alpha1/apiresourceschemas"
	cached    = "GET /services/cache/shards/%s/clusters/*/%s"
	slicePath = "/services/apiexport/root/tenancy.kcp.io"
)

func object(name string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": name, "annotations": map[string]any{"kcp.io/cluster": "root"}}}
}

func logicalCluster(id, path string, owner map[string]any) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "cluster", "annotations": map[string]any{"kcp.io/cluster": id, "kcp.io/path": path}},
		"spec":     map[string]any{"owner": owner},
	}
}

func items(all ...any) fakekcp.Answer {
	return fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": append([]any{}, all...)}}
}

func endpointSlice(urls ...string) fakekcp.Answer {
	o, endpoints := object("tenancy.kcp.io"), []any{}
	for _, u := range urls {
		endpoints = append(endpoints, map[string]any{"url": u})
	}
	o["status"] = map[string]any{"endpoints": endpoints}
	return items(o)
}

func newTopology(t *testing.T, spec string) *topology.Topology {
	t.Helper()
	f, err := setup.Parse("kcp.yaml", []byte("apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\nspec:\n  version: v0.32.3\n"+spec))
	require.NoError(t, err)
	return topology.Build(f.Setup)
}

// inWorld runs a test on a setup that is well.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		top := newTopology(t, "  external: {hostname: kcp.example.com}\n  shards: [{name: alpha}]\n  kubeconfigs: [{name: admin}]\n")
		rt := fakeruntime.New(t, top)
		k := rt.Kcp
		w := &world{top: top, rt: rt, net: &network{}, now: time.Now()}
		w.leads("front-proxy/main")
		k.Always("list apiexportendpointslices", endpointSlice(top.Root().VirtualWorkspaceURL+slicePath))
		u := &deploy.Up{Topology: top, Runtime: rt, Observe: func(run.Event) {}, Now: time.Now, Network: w.net}
		_, err := u.Run(t.Context())
		require.NoError(t, err)
		for _, path := range []string{"/health", "/clusters/root/api", slicePath + "/clusters/*/apis"} {
			k.Always("GET "+path, fakekcp.Answer{Code: http.StatusOK, Body: "{}"})
		}
		k.Always("list apiexports", items())
		k.Always("list apiresourceschemas", items())
		k.Always("root-shard list apiexports", items(object("tenancy.kcp.io")))
		for _, shard := range []string{"root", "alpha"} {
			k.Always(fmt.Sprintf(cached, shard, exports), items())
			k.Always(fmt.Sprintf(cached, shard, schemas), items())
		}
		k.Always(fmt.Sprintf(cached, "root", exports), items(object("tenancy.kcp.io")))
		k.Always(fmt.Sprintf(cached, "root", "apis/core.kcp.io/v1alpha1/shards"), items(object("root"), object("alpha")))
		test(t, w)
	})
}

func (w *world) check(t *testing.T) *check.Report {
	t.Helper()
	s := &check.Subject{Topology: w.top, Runtime: w.rt, Network: w.net, Now: func() time.Time { return w.now }, Pause: 1}
	defer s.Close()
	require.NoError(t, s.Prepare(t.Context()))
	return check.Run(t.Context(), s, check.Health)
}

func TestARunningSetupPasses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := w.check(t)
		for _, res := range r.Results {
			if res.Category == "Agents that run" {
				require.Equal(t, "the setup has no agents that run", res.Cause)
				continue
			}
			if res.ID == "KCP114" {
				require.Equal(t, "all connections stay within one cluster", res.Cause)
				continue
			}
			if res.Category == "Workloads" {
				require.Equal(t, check.Skipped, res.Status, "the setup has no workloads")
				continue
			}
			require.Equal(t, check.OK, res.Status, "%+v", res)
		}
	})
}

// leaf replaces a certificate of the store by one that another setup has issued.
func (w *world) leaf(t *testing.T, id topology.ID, cert string) {
	t.Helper()
	other := pkitest.Issue(t, w.top, w.now)
	c := w.top.Component(id)
	key := pki.LeafKey{Cluster: c.Cluster.Name, Secret: c.Object(cert)}
	w.rt.PKI().Leaves[key] = other.Leaves[key]
}

// Every fault of a running setup is found by the check for it.
func TestChecksNameTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, w *world)
		id    string
		want  check.Status
		says  string
	}{
		"a shard crashes": {
			func(_ *testing.T, w *world) {
				w.rt.States("shard/alpha", ready.State{Replicas: 1, Reason: "Pod x: CrashLoopBackOff"})
			}, "KCP101", check.Fail, "shard/alpha: Pod x: CrashLoopBackOff",
		},
		"a part of a shard is not ready": {
			func(_ *testing.T, w *world) {
				w.rt.States("shard/alpha", ready.State{Replicas: 1, Reason: "readiness probe failed", Pods: map[string]bool{"x": true}})
				w.rt.Kcp.Always("shard/alpha readyz", fakekcp.NotReady("kms-provider-0"))
			}, "KCP101", check.Fail, "shard/alpha: readiness probe failed; /readyz: kms-provider-0 not ready",
		},
		"etcd is not healthy": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always("etcd/alpha GET /health", fakekcp.Answer{Code: http.StatusServiceUnavailable, Body: "no leader"})
			}, "KCP102", check.Fail, "etcd/alpha: /health: no leader",
		},
		"an etcd is almost full": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always("etcd/alpha GET /metrics", fakekcp.Answer{Code: http.StatusOK,
					Body: "etcd_mvcc_db_total_size_in_bytes 1.879048192e+09\n"})
			}, "KCP103", check.Warn, "etcd/alpha: its database has 1.8 GiB of 2.0 GiB",
		},
		"an etcd does not tell its size": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always("etcd/alpha GET /metrics", fakekcp.Answer{Code: http.StatusOK, Body: "go_threads 7\n"})
			}, "KCP103", check.Fail, "etcd/alpha: its metrics do not have etcd_mvcc_db_total_size_in_bytes",
		},
		"a controller does not start": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always("shard/alpha readyz", fakekcp.NotReady("kcp-start-informers"))
			}, "KCP102", check.Fail, "shard/alpha: /readyz: ",
		},
		"a front-proxy does not know the clients' authority": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always("front-proxy/main GET /clusters/root/api", fakekcp.Refuse(http.StatusUnauthorized, "Unauthorized", "Unauthorized"))
			}, "KCP112", check.Fail, "the server does not know the client's certificate demo-kubeconfig-admin",
		},
		"a shard takes a client for anybody": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always("shard/alpha GET /clusters/root/api", fakekcp.Refuse(http.StatusForbidden, "Forbidden", `User "system:anonymous" cannot get path`))
			}, "KCP112", check.Fail, "the server does not know the client's certificate demo-front-proxy-main-requestheader",
		},
		"a client's certificate is of another authority": {
			func(t *testing.T, w *world) { w.leaf(t, "shard/alpha", topology.CertClient) }, "KCP112", check.Fail, "shard/alpha at ",
		},
		"the store does not fit together": {
			func(t *testing.T, w *world) { w.leaf(t, "shard/alpha", topology.CertClient) }, "KCP132", check.Fail, "does not accept shard/alpha",
		},
		"a server's certificate is of another authority": {
			func(t *testing.T, w *world) { w.leaf(t, "shard/alpha", topology.CertServer) }, "KCP112", check.Fail, "the client does not trust the server",
		},
		"a proxy terminates TLS": {
			func(t *testing.T, w *world) { w.terminates(t) }, "KCP113", check.Fail, "a proxy terminates TLS there instead of passing it through",
		},
		"the external address leads to another component": {
			func(_ *testing.T, w *world) { w.leads("shard/alpha") }, "KCP113", check.Fail,
			"it is the certificate of shard/alpha, so the address leads there",
		},
		"nothing listens at the external address": {
			func(_ *testing.T, w *world) {
				w.net.dial = func(context.Context, *tls.Config) (*tls.Conn, error) { return nil, errors.New("connection refused") }
			}, "KCP113", check.Warn, "does not answer this machine: connection refused",
		},
		"the external address is silent": {
			func(_ *testing.T, w *world) {
				w.net.dial = func(ctx context.Context, _ *tls.Config) (*tls.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
			}, "KCP113", check.Warn, "no answer within 3s",
		},
		"metrics are open": {
			func(t *testing.T, w *world) { w.measures(t) }, "KCP116", check.Warn, "https://kcp.example.com:6443/metrics (front-proxy/main) answers without credentials",
		},
		"a shard is not registered": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always(fakekcp.ListShards, fakekcp.Shards(kcp.Shard{Name: "root"}))
			}, "KCP121", check.Fail, "shard/alpha: not registered",
		},
		"a shard has an old URL": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Register(kcp.Shard{Name: "alpha", BaseURL: "https://old.example.com"})
			}, "KCP121", check.Fail, "shard/alpha: registered with the base URL https://old.example.com instead of https://demo-shard-alpha",
		},
		"a shard is left over": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Register(kcp.Shard{Name: "gone", BaseURL: "https://gone.example.com"})
			}, "KCP121", check.Warn, "shard gone (https://gone.example.com) is registered but not in the setup",
		},
		"a shard is cordoned": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always(fakekcp.ListShards, fakekcp.Shards(kcp.Shard{Name: "root"}, kcp.Shard{Name: "alpha", Cordoned: true}))
			}, "KCP122", check.Warn, "cordoned: alpha",
		},
		"a logical cluster has lost its Workspace": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always("root-shard list logicalclusters", items(logicalCluster("root", "root", nil)))
				w.rt.Kcp.Always("shard/alpha list logicalclusters", items(logicalCluster("2mc5xs36lrnz4t3j", "root:team",
					map[string]any{"cluster": "root", "name": "team", "resource": "workspaces", "uid": "1"})))
			}, "KCP125", check.Fail, "logical clusters without a Workspace: root:team",
		},
		"an interrupted run was moving a workspace": {
			func(_ *testing.T, w *world) {
				closed := logicalCluster("2mc5xs36lrnz4t3j", "root:team", nil)
				closed["metadata"].(map[string]any)["annotations"].(map[string]any)["kcpctl.dev/moving"] = "root"
				w.rt.Kcp.Always("shard/alpha list logicalclusters", items(closed))
			}, "KCP125", check.Fail, "workspaces that are being moved, although no run is in progress: root:team",
		},
		"all shards are cordoned": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always(fakekcp.ListShards, fakekcp.Shards(kcp.Shard{Name: "root", Cordoned: true}))
			}, "KCP122", check.Fail, "every shard is cordoned: root",
		},
		"the cache lacks an API": {
			func(_ *testing.T, w *world) { w.rt.Kcp.Always(fmt.Sprintf(cached, "root", exports), items()) },
			"KCP123", check.Fail, "root-shard: the cache lacks apiexports root:tenancy.kcp.io",
		},
		"the cache has an API that is gone": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always(fmt.Sprintf(cached, "alpha", schemas), items(object("old")))
			}, "KCP123", check.Fail, "shard/alpha: the cache still has apiresourceschemas root:old",
		},
		"the cache does not know a shard": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always(fmt.Sprintf(cached, "root", "apis/core.kcp.io/v1alpha1/shards"), items(object("root")))
			}, "KCP123", check.Fail, "the cache does not know shard alpha",
		},
		"an endpoint leads to a shard that is gone": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always("list apiexportendpointslices", endpointSlice("https://gone.example.com:6443/services/apiexport/root/tenancy.kcp.io"))
			}, "KCP124", check.Fail, "no shard of the setup has this address",
		},
		"an endpoint is not served": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always("GET "+slicePath+"/clusters/*/apis", fakekcp.Answer{Code: http.StatusNotFound, Body: "404"})
			}, "KCP124", check.Fail, "Not Found",
		},
		"a certificate expires soon": {
			func(_ *testing.T, w *world) { w.now = w.now.Add(350 * 24 * time.Hour) }, "KCP131", check.Warn, "expires on",
		},
		"a certificate has expired": {
			func(_ *testing.T, w *world) { w.now = w.now.Add(366 * 24 * time.Hour) }, "KCP131", check.Fail, "demo-root-server expired on",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				tc.spoil(t, w)
				for _, res := range w.check(t).Results {
					if res.ID == tc.id {
						require.Equal(t, tc.want, res.Status, "%+v", res)
						require.Contains(t, res.Cause, tc.says)
						require.NotEmpty(t, res.Fix)
					}
				}
			})
		})
	}
}

// What an interrupted run has left has the command that completes it. A run that is in progress completes it itself.
func TestMovesOfAnInterruptedRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.rt.Kcp.ServeMoves(fakekcp.Cluster{Path: "root:team", Shard: "alpha"})
		ctx, cancel := context.WithCancel(t.Context())
		m.During = func(phase, _ string) {
			if phase == "DestinationFinalize" {
				m.Before = func() bool { return false }
				cancel()
			}
		}
		move := &shards.Moves{
			Topology: w.top, Runtime: w.rt, Choice: shards.Selected{Workspaces: []string{"root:team"}, To: "root"},
			Observe: func(run.Event) {}, Now: time.Now,
		}
		require.Error(t, move.Run(ctx))
		m.Resume()
		agree := func() check.Result {
			all := w.check(t).Results
			return all[slices.IndexFunc(all, func(res check.Result) bool { return res.ID == "KCP125" })]
		}
		w.rt.Kcp.Always("list workspaces", items())
		w.rt.Kcp.Always("list logicalclusters", items())
		res := agree()
		require.Equal(t, "workspaces that are being moved, although no run is in progress: team-id", res.Cause)
		require.Equal(t, "run kcpctl move team-id --to root, which completes all of these moves", res.Fix)

		w.rt.Current = &record.Run{Command: "kcpctl move root:team --to root"}
		res = agree()
		require.Equal(t, check.OK, res.Status, res.Cause)
	})
}

// A name that a cluster has yet to assign cannot resolve.
func TestAnAssignedNameIsNotLookedUp(t *testing.T) {
	for hostname, want := range map[string]check.Status{"auto": check.Skipped, "kcp.nowhere.example.com": check.Warn} {
		top := newTopology(t, "  external: {hostname: "+hostname+"}\n  frontProxies: [{name: main, expose: LoadBalancer}]\n")
		s := &check.Subject{Topology: top, Runtime: fakeruntime.New(t, top), Network: &network{}, Now: time.Now}
		resolves, ok := check.Find("KCP021")
		require.True(t, ok)
		r := check.Run(t.Context(), s, []check.Check{resolves})
		require.Equal(t, want, r.Results[0].Status, "%s: %+v", hostname, r.Results[0])
	}
}

// A check does not pass for components that it has not examined.
func TestWhatIsNotReadyIsNotExamined(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		alpha := w.top.Component("shard/alpha").VirtualWorkspaceURL
		w.rt.Kcp.Always("list apiexportendpointslices", endpointSlice(alpha+slicePath))
		w.rt.States("shard/alpha", ready.State{Replicas: 1, Reason: "not running"})
		r := w.check(t)
		for _, id := range []string{"KCP102", "KCP111", "KCP112", "KCP123", "KCP124"} {
			res := r.Results[slices.IndexFunc(r.Results, func(res check.Result) bool { return res.ID == id })]
			require.Equal(t, check.Skipped, res.Status, "%+v", res)
			require.Contains(t, res.Cause, "not examined: shard/alpha (not ready")
		}
	})
}

// A certificate that has expired is reported once, and not again for each connection that needs it.
func TestExpiredCertificatesAreReportedOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.now = w.now.Add(366 * 24 * time.Hour)
		r := w.check(t)
		res := r.Results[slices.IndexFunc(r.Results, func(res check.Result) bool { return res.ID == "KCP132" })]
		require.Equal(t, check.Skipped, res.Status, "%+v", res)
		require.Contains(t, res.Cause, "KCP131")
	})
}

// An edge presents a certificate of its own. It is an error if its authority is not the one in the setup file, or if
// the address leads past the edge. Without one in the setup file, clients may know what this machine does not. The table
// of addresses says the same.
func TestAnEdgeTerminatesTLS(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ca := w.terminates(t)
		proxy := w.top.FrontProxies()[0]
		requires := func(ca []byte, status check.Status, reach check.Reach) {
			t.Helper()
			proxy.Serving = &v1alpha1.Serving{Edge: true, CA: string(ca)}
			r := w.check(t)
			i := slices.IndexFunc(r.Results, func(res check.Result) bool { return res.ID == "KCP113" })
			require.Equal(t, status, r.Results[i].Status, r.Results[i].Cause)
			i = slices.IndexFunc(r.Reachability, func(a check.Reachability) bool { return a.To == string(proxy.ID()) })
			require.Equal(t, reach, r.Reachability[i].Result, r.Reachability[i].Detail)
		}
		requires(ca, check.OK, check.Answers)
		requires(pkitest.Issue(t, w.top, w.now).CAs[topology.ServerCA].Trusted(), check.Fail, check.OtherServer)
		requires(nil, check.Warn, check.Answers)
		w.leads("front-proxy/main")
		requires(ca, check.Fail, check.OtherServer)
		requires(nil, check.Fail, check.OtherServer)
	})
}

// A server that presents another certificate than the store's has not read it again, or is not the server.
func TestAServerPresentsAnotherCertificate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := &check.Subject{Topology: w.top, Runtime: strange{w.rt, w.top}, Network: w.net, Now: time.Now}
		defer s.Close()
		require.NoError(t, s.Prepare(t.Context()))
		presents, ok := check.Find("KCP111")
		require.True(t, ok)
		r := check.Run(t.Context(), s, []check.Check{presents})
		require.Equal(t, check.Fail, r.Results[0].Status)
		require.Equal(t, `shard/alpha: presents a certificate for "demo-root", issued by "demo-server-ca", valid until 2000-12-31, `+
			"not the certificate in Secret demo-shard-alpha-server", r.Results[0].Cause)
	})
}

// strange is a runtime whose connections to shard alpha lead to the root shard.
type strange struct {
	*fakeruntime.Runtime
	top *topology.Topology
}

func (s strange) Dial(ctx context.Context, c *topology.Component) (net.Conn, error) {
	if c.Kind == topology.Shard {
		c = s.top.Root()
	}
	return s.Runtime.Dial(ctx, c)
}

// Whatever is broken, what is not ready is told of once.
func TestNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := newTopology(t, "")
		s := &check.Subject{Topology: top, Runtime: fakeruntime.New(t, top), Network: &network{}, Now: time.Now}
		require.NoError(t, s.Prepare(t.Context()))
		r := check.Run(t.Context(), s, check.Health)
		require.Equal(t, "1 failed, 1 passed, 26 skipped", r.Summary())
		require.Equal(t, "etcd/root: is not there\nroot-shard: is not there\nfront-proxy/main: is not there", r.Results[0].Cause)
	})
}

func TestPhysicalClustersAreReady(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.top = newTopology(t, "  external: {hostname: kcp.example.com}\n  shards: [{name: alpha}]\n  workloads: {clusters: [{name: c1}, {name: c2, context: c2}]}\n")
		w.rt.States("cluster/c1", ready.State{Ready: true})
		w.rt.States("cluster/c2", ready.State{Reason: "Unreachable: no route to host"})
		s := &check.Subject{Topology: w.top, Runtime: w.rt, Network: w.net, Now: func() time.Time { return w.now }}
		defer s.Close()
		c, ok := check.Find("KCP152")
		require.True(t, ok)
		r := check.Run(t.Context(), s, []check.Check{c})
		require.Equal(t, check.Fail, r.Results[0].Status)
		require.Equal(t, "cluster/c2: Unreachable: no route to host", r.Results[0].Cause)
		require.Contains(t, r.Results[0].Fix, "kcpctl up")
	})
}
