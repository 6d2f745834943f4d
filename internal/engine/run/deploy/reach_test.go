package deploy_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

const twoPlaces = `spec:
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  external: {hostname: kcp.example.com}
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  frontProxies: [{name: main, cluster: eu}]
  shards: [{name: alpha, cluster: us, url: "https://alpha.example.com:6443"}]
`

// probed lets the run ask both clusters, where one address does not answer, and returns the calls that write before the
// first one was asked.
func (w *world) probed(broken string) *[]string {
	var mu sync.Mutex
	var before []string
	for _, name := range []string{"eu", "us"} {
		w.Runtime.Place.Clusters = append(w.Runtime.Place.Clusters, &fakeruntime.Cluster{Label: name, Reached: func(address string) (check.Answer, error) {
			mu.Lock()
			defer mu.Unlock()
			if before == nil {
				before = append([]string{}, w.Runtime.Calls()...)
			}
			if address == broken {
				return check.Answer{Reach: check.NoAnswer, Detail: "i/o timeout"}, nil
			}
			return check.Answer{Reach: check.Answers}, nil
		}})
	}
	return &before
}

// table returns the table of the run's notes.
func (w *world) table() [][]string {
	i := slices.IndexFunc(w.Events, func(e run.Event) bool { return len(e.Table) > 0 })
	if i < 0 {
		return nil
	}
	return w.Events[i].Table
}

// A run on several clusters tries their addresses when the namespaces exist, and before it takes the lock.
func TestUpTriesAddresses(t *testing.T) {
	t.Run("everything answers", func(t *testing.T) {
		inWorld(t, twoPlaces, func(t *testing.T, w *world) {
			before := w.probed("")
			w.MustRun(t)
			require.Equal(t, []string{"Apply namespaces"}, *before)
			require.Equal(t, []string{"us", "root-shard", "root.example.com:6443", "answers"}, w.table()[3][:4])
			*before = nil
			w.MustRun(t)
			require.Nil(t, *before, "there was nothing to do")
		})
	})
	t.Run("nothing serves yet", func(t *testing.T) {
		inWorld(t, twoPlaces, func(t *testing.T, w *world) {
			w.probed("root.example.com:6443")
			w.MustRun(t)
			require.Contains(t, w.Of(""), "KCP024: us cannot reach root-shard at root.example.com:6443: i/o timeout; root-shard does not serve there yet")
		})
	})
	t.Run("what runs does not answer", func(t *testing.T) {
		inWorld(t, twoPlaces, func(t *testing.T, w *world) {
			w.MustRun(t)
			w.Runtime.Edit("Deployment/kcp/demo-root", func(o *unstructured.Unstructured) {
				require.NoError(t, unstructured.SetNestedField(o.Object, int64(7), "spec", "replicas"))
			})
			w.probed("root.example.com:6443")
			w.Runtime.Forget()
			_, err := w.Run(t)
			runtest.RequireError(t, err, clierr.Failed, "KCP024: eu cannot reach root-shard at root.example.com:6443: i/o timeout\n"+
				"us cannot reach root-shard at root.example.com:6443: i/o timeout")
			require.Empty(t, w.Runtime.Calls(), "nothing was to be written")

			w.Up.Options.IgnoreChecks = []string{"KCP024"}
			w.MustRun(t)
		})
	})
	t.Run("a dry run creates no pods", func(t *testing.T) {
		inWorld(t, twoPlaces, func(t *testing.T, w *world) {
			before := w.probed("")
			w.Up.Options.DryRun = true
			w.MustRun(t)
			require.Nil(t, *before)
			require.Contains(t, w.Of(""), "a dry run creates no pods: kcpctl check --pre tries the addresses between the clusters")
		})
	})
	t.Run("one cluster", func(t *testing.T) {
		inWorld(t, "spec: {external: {hostname: kcp.example.com}}\n", func(t *testing.T, w *world) {
			before := w.probed("")
			w.MustRun(t)
			require.Nil(t, *before, "a pod would take seconds")
		})
	})
}
