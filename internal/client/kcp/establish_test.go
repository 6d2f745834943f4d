package kcp_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

func TestEstablishCRDs(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		k.Define(
			fakekcp.CRD{Cluster: "system:system-crds", Name: "apiexports.apis.kcp.io", NamesAccepted: true},
			fakekcp.CRD{Cluster: "system:bound-crds", Name: "uid-of-a-schema", NamesAccepted: true},
			fakekcp.CRD{Cluster: "system:bound-crds", Name: "established", NamesAccepted: true, Established: true},
			fakekcp.CRD{Cluster: "system:bound-crds", Name: "conflicting"},
			fakekcp.CRD{Cluster: "a-user", Name: "widgets.example.com", NamesAccepted: true},
		)
		k.Script(fakekcp.WatchCRDs, fakekcp.Refuse(500, "InternalError", "etcd is not there yet"))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			c.EstablishCRDs(ctx)
			close(ended)
		}()
		time.Sleep(time.Second)
		require.Equal(t, []string{
			"system:bound-crds:established", "system:bound-crds:uid-of-a-schema", "system:system-crds:apiexports.apis.kcp.io",
		}, k.Established())
		require.Len(t, k.Requests(fakekcp.UpdateStatus), 2)
		stop()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Fatal("it has not ended")
		}
	})
}

func TestReplicateShard(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		alpha := fakekcp.Shard(kcp.Shard{Name: "alpha", BaseURL: "https://alpha:6443"})
		k.Script(fakekcp.GetShard, alpha, alpha)
		for range 2 {
			require.NoError(t, c.ReplicateShard(t.Context(), c, "alpha"), "also if it is there already")
		}
		require.Equal(t, []string{"root shards root:alpha"}, k.InCache())
		copied := k.Cached("root shards root:alpha")
		require.Equal(t, "https://alpha:6443", copied.Fields["spec"].(map[string]any)["baseURL"])
		require.Equal(t, "7", copied.Annotations["cache.kcp.io/original-resource-version"])
		require.Equal(t, "uid-of-alpha", copied.Annotations["cache.kcp.io/original-resource-UID"])
		require.Equal(t, "root", copied.Annotations["kcp.io/shard"])
		require.ErrorContains(t, c.ReplicateShard(t.Context(), c, "gamma"), "read shard gamma: ")

		// Where a backup is restored, the root shard has replicated the URL of before.
		k.Register(kcp.Shard{Name: "alpha", BaseURL: "https://here.example.com"})
		k.Script("update cached shards", fakekcp.Refuse(http.StatusConflict, "Conflict", "the root shard has just changed it"))
		require.NoError(t, c.ReplicateShard(t.Context(), c, "alpha"))
		spec, _ := k.Cached("root shards root:alpha").Fields["spec"].(map[string]any)
		require.Equal(t, "https://here.example.com", spec["baseURL"])
	})
}
