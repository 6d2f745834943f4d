package run_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

func TestClearCache(t *testing.T) {
	for holder, text := range map[string]string{
		"root-shard":   twoShards,
		"cache-server": minimal + "spec: {cacheServer: {}, shards: [{name: alpha}, {name: beta}]}\n",
	} {
		t.Run(holder, func(t *testing.T) {
			inWorld(t, text, func(t *testing.T, w *world) {
				w.mustRun(t)
				w.rt.Kcp.Put(
					fakekcp.Entry{Shard: "root", Cluster: "root", Resource: "apiexports", Name: "tenancy.kcp.io"},
					fakekcp.Entry{Shard: "alpha", Cluster: "one", Resource: "apiexports", Name: "widgets"},
					fakekcp.Entry{Shard: "alpha", Cluster: "one", Resource: "apiresourceschemas", Name: "v1.widgets"},
				)
				n, err := run.CountCache(t.Context(), w.rt, w.top, w.rt.PKI(), time.Now(), "alpha")
				require.NoError(t, err)
				require.Equal(t, 2, n)

				w.rt.Kcp.Script(fakekcp.DeleteCached+"apiresourceschemas", fakekcp.Refuse(http.StatusInternalServerError, "InternalError", "no etcd"))
				n, err = run.ClearCache(t.Context(), w.rt, w.top, w.rt.PKI(), time.Now(), "alpha")
				requireError(t, err, clierr.Failed, holder+" still has entries of shard alpha: "+
					"delete apiresourceschemas.apis.kcp.io one:v1.widgets of shard alpha in the cache: no etcd")
				require.NotEmpty(t, clierr.Hint(err))
				require.Equal(t, 1, n)

				for _, want := range []int{1, 0} { // it continues, and can be done again
					n, err = run.ClearCache(t.Context(), w.rt, w.top, w.rt.PKI(), time.Now(), "alpha")
					require.NoError(t, err)
					require.Equal(t, want, n)
				}
				require.Equal(t, []string{"root apiexports root:tenancy.kcp.io"}, w.rt.Kcp.InCache())
				for _, r := range w.rt.Kcp.Requests(fakekcp.DeleteCached + "apiexports") {
					require.Equal(t, holder, r.Server)
					require.Equal(t, []string{"system:masters"}, r.Groups)
				}
			})
		})
	}
}
