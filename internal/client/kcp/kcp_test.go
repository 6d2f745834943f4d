package kcp_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// TestMain runs the tests on a machine that has a proxy: servers that are dialled never lead through it.
func TestMain(m *testing.M) {
	if err := os.Setenv("HTTPS_PROXY", "http://proxy.invalid:3128"); err != nil {
		panic(err)
	}
	m.Run()
}

// withKcp runs a test in a bubble, with a client of a kcp that has the shards root and alpha.
func withKcp(t *testing.T, test func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client)) {
	t.Helper()
	withOptions(t, func(t *testing.T, k *fakekcp.Kcp, o kcp.Options) { test(t, k, kcp.New(o)) })
}

// withOptions is withKcp with the options of the client.
func withOptions(t *testing.T, test func(t *testing.T, k *fakekcp.Kcp, o kcp.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		top := topologytest.Build(t, "")
		issued := pkitest.Issue(t, top, time.Now())
		proxy := top.FrontProxies()[0]
		leaf := issued.Leaves[pki.KeyOf(proxy, topology.CertServer)]
		pair, err := pki.Mint(issued, pki.MintSpec{
			CN: pki.CNSelf, Orgs: []string{pki.GroupAdmin}, Algorithm: v1alpha1.KeyECDSAP256, Validity: time.Hour,
		}, time.Now())
		require.NoError(t, err)

		k := fakekcp.New(t)
		k.Register(kcp.Shard{Name: "root", BaseURL: "https://root:6443"})
		k.Register(kcp.Shard{Name: "alpha", BaseURL: "https://alpha:6443", VirtualWorkspaceURL: "https://vw:6443", Cordoned: true})
		k.Serve("proxy", leaf, issued.CAs[topology.ClientCA].Trusted())
		test(t, k, kcp.Options{
			URL: proxy.URL + "/", CA: issued.CAs[topology.ServerCA].Trusted(), Pair: pair,
			Dial: func(ctx context.Context) (net.Conn, error) { return k.Dial(ctx, "proxy") },
		})
	})
}

// countedConn counts that it is closed.
type countedConn struct {
	net.Conn
	closed func()
}

func (c countedConn) Close() error { c.closed(); return c.Conn.Close() }

func TestCloseClosesTheConnection(t *testing.T) {
	withOptions(t, func(t *testing.T, k *fakekcp.Kcp, o kcp.Options) {
		var dialled, closed atomic.Int32
		o.Dial = func(ctx context.Context) (net.Conn, error) {
			conn, err := k.Dial(ctx, "proxy")
			dialled.Add(1)
			return countedConn{conn, sync.OnceFunc(func() { closed.Add(1) })}, err
		}
		c := kcp.New(o)
		for n := range int32(2) { // it can be used again
			require.NoError(t, c.Ready(t.Context()))
			require.Equal(t, n+1, dialled.Load())
			c.Close()
			synctest.Wait()
			require.Equal(t, n+1, closed.Load())
		}
	})
}

func TestReady(t *testing.T) {
	for name, tc := range map[string]struct {
		answer fakekcp.Answer
		want   string // the beginning of the error
	}{
		"ready":              {fakekcp.Answer{Code: http.StatusOK, Body: "ok"}, ""},
		"one check fails":    {fakekcp.NotReady("poststarthook/bootstrap"), "/readyz: poststarthook/bootstrap not ready"},
		"two checks fail":    {fakekcp.NotReady("informer-sync", "etcd"), "/readyz: informer-sync, etcd not ready"},
		"refused":            {fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not you"), "/readyz: 403 Forbidden"},
		"fails without word": {fakekcp.Answer{Code: http.StatusInternalServerError, Body: "boom"}, "/readyz: 500 Internal Server Error"},
	} {
		t.Run(name, func(t *testing.T) {
			withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
				k.Always(fakekcp.Readyz, tc.answer)
				err := c.Ready(t.Context())
				if tc.want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, tc.want)
				}
				require.Len(t, k.Requests(fakekcp.Readyz), 1)
				require.Equal(t, pki.CNSelf, k.Requests("")[0].User)
			})
		})
	}
}

func TestReadyOfAServerThatDoesNotListen(t *testing.T) {
	refused := errors.New("connection refused")
	c := kcp.New(kcp.Options{URL: "https://demo:6443", Dial: func(context.Context) (net.Conn, error) { return nil, refused }})
	require.ErrorIs(t, c.Ready(t.Context()), refused)
}

func TestReadyOfAServerThatDoesNotAnswer(t *testing.T) {
	c := kcp.New(kcp.Options{URL: "https://demo:6443", Dial: func(context.Context) (net.Conn, error) {
		return nil, context.DeadlineExceeded
	}})
	err := c.Ready(t.Context())
	require.EqualError(t, err, "/readyz does not answer yet")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestClientKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialled := 0
		c := kcp.New(kcp.Options{URL: "http://demo", Dial: func(ctx context.Context) (net.Conn, error) {
			dialled++
			return serve(t).Dial(ctx)
		}})
		for range 3 {
			_, err := c.Shards(t.Context())
			require.NoError(t, err)
			require.NoError(t, c.Ready(t.Context()))
		}
		require.Equal(t, 1, dialled)
	})
}

// serve answers every request with an empty list.
func serve(t *testing.T) *fakekcp.Listener {
	l := fakekcp.NewListener()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"ShardList","apiVersion":"core.kcp.io/v1alpha1","items":[]}`))
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return l
}

func TestShards(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		got, err := c.Shards(t.Context())
		require.NoError(t, err)
		require.Equal(t, []kcp.Shard{
			{Name: "alpha", BaseURL: "https://alpha:6443", VirtualWorkspaceURL: "https://vw:6443", Cordoned: true},
			{Name: "root", BaseURL: "https://root:6443"},
		}, got)
		require.Equal(t, "/clusters/root/apis/core.kcp.io/v1alpha1/shards", k.Requests("")[0].Path)

		k.Script(fakekcp.ListShards, fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not yours"))
		_, err = c.Shards(t.Context())
		require.EqualError(t, err, "list shards: not yours")
	})
}

func TestShard(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		got, err := c.Shard(t.Context(), "alpha")
		require.NoError(t, err)
		require.Equal(t, kcp.Shard{Name: "alpha", BaseURL: "https://alpha:6443", VirtualWorkspaceURL: "https://vw:6443", Cordoned: true}, got)
		_, err = c.Shard(t.Context(), "beta")
		require.ErrorIs(t, err, kcp.ErrNotRegistered)

		k.Script(fakekcp.GetShard, fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not yours"),
			fakekcp.Answer{Code: http.StatusNotFound, Body: "404 page not found"})
		_, err = c.Shard(t.Context(), "alpha")
		require.EqualError(t, err, "read shard alpha: not yours")
		_, err = c.Shard(t.Context(), "alpha")
		require.NotErrorIs(t, err, kcp.ErrNotRegistered, "a server that does not serve shards yet")
		require.EqualError(t, err, "read shard alpha: kcp does not serve core.kcp.io/v1alpha1/shards: it may still be starting")
		require.True(t, kcp.LacksAPI(err))
	})
}

func TestBindRoles(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		require.NoError(t, c.BindRoles(t.Context(), "root:team", "demo-kubeconfig-ops", "ops", []string{"view", "edit"}, map[string]string{"a": "b"}))
		for _, role := range []string{"view", "edit", "system:kcp:workspace:access"} {
			b := k.Binding("root:team/demo-kubeconfig-ops-" + role)
			require.NotNil(t, b)
			require.Equal(t, map[string]string{"a": "b"}, b.GetLabels())
			require.Equal(t, map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, b.Object["roleRef"])
			require.Equal(t, []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "ops"}}, b.Object["subjects"])
		}

		k.Script(fakekcp.ApplyBinding, fakekcp.Refuse(http.StatusForbidden, "Forbidden", "no"))
		err := c.BindRoles(t.Context(), "root", "demo", "ops", []string{"view"}, nil)
		require.EqualError(t, err, "bind cluster role system:kcp:workspace:access in workspace root: no")
	})
}
