package shards_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func TestClearCache(t *testing.T) {
	for holder, text := range map[string]string{
		"root-shard":   runtest.TwoShards,
		"cache-server": runtest.Minimal + "spec: {cacheServer: {}, shards: [{name: alpha}, {name: beta}]}\n",
	} {
		t.Run(holder, func(t *testing.T) {
			inWorld(t, text, func(t *testing.T, w *world) {
				r := w.removal(t)
				w.Runtime.Kcp.Put(
					fakekcp.Entry{Shard: "root", Cluster: "root", Resource: "apiexports", Name: "tenancy.kcp.io"},
					fakekcp.Entry{Shard: "alpha", Cluster: "one", Resource: "apiexports", Name: "widgets"},
					fakekcp.Entry{Shard: "alpha", Cluster: "one", Resource: "apiresourceschemas", Name: "v1.widgets"},
				)
				w.Runtime.Kcp.Script(fakekcp.DeleteCached+"apiresourceschemas", fakekcp.Refuse(http.StatusInternalServerError, "InternalError", "no etcd"))
				err := r.Run(t.Context())
				runtest.RequireError(t, err, clierr.Failed, holder+" still has entries of shard alpha: "+
					"delete apiresourceschemas.apis.kcp.io one:v1.widgets of shard alpha in the cache: no etcd")
				require.NotEmpty(t, clierr.Hint(err))
				require.NotContains(t, w.Runtime.Calls(), "Finish")

				// It continues, and can be done again.
				r.Topology = topologytest.Build(t, strings.Replace(text, "{name: alpha}, ", "", 1))
				w.Runtime.Kcp.Always(fakekcp.ListShards, fakekcp.Shards(kcp.Shard{Name: "root"}, kcp.Shard{Name: "beta"}))
				for _, want := range []string{"done 1 entry removed", "done 0 entries removed"} {
					w.Events = nil
					require.NoError(t, r.Run(t.Context()))
					require.Equal(t, want, w.Of("cache")[1])
				}
				left := slices.DeleteFunc(w.Runtime.Kcp.InCache(), func(entry string) bool { return strings.HasPrefix(entry, "root shards ") })
				require.Equal(t, []string{"root apiexports root:tenancy.kcp.io"}, left)
				for _, r := range w.Runtime.Kcp.Requests(fakekcp.DeleteCached + "apiexports") {
					require.Equal(t, holder, r.Server)
					require.Equal(t, []string{"system:masters"}, r.Groups)
				}
			})
		})
	}
}
