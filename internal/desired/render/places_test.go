package render_test

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// threePlaces has a shard on us, and only a front-proxy on ap.
const threePlaces = `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}, {name: ap, context: ap}]
  cacheServer: {cluster: eu, url: "https://cache.example.com:6443", etcd: {managed: {}}}
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards:
  - {name: alpha, url: "https://alpha.example.com:6443"}
  - {name: beta, cluster: us, url: "https://beta.example.com:6443"}
  frontProxies: [{name: main, cluster: eu}, {name: edge, cluster: ap}]
`

// valuesOf returns the decoded values of a Secret or ConfigMap.
func valuesOf(t *testing.T, o render.Object) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	values, _ := o.Object["data"].(map[string]any)
	for k, v := range values {
		out[k] = []byte(v.(string))
		if o.GetKind() == "Secret" {
			raw, err := base64.StdEncoding.DecodeString(v.(string))
			require.NoError(t, err)
			out[k] = raw
		}
	}
	return out
}

// A cluster gets only what its components use: no key of an authority anywhere, the keys of service accounts only where
// a shard runs, and only certificates of its own components.
func TestEachClusterGetsWhatItsComponentsUse(t *testing.T) {
	top, state, objects := rendered(t, threePlaces)
	keys := [][]byte{}
	for _, a := range state.CAs {
		keys = append(keys, a.Key)
	}
	holders := map[string]bool{}
	for _, o := range objects {
		require.Equal(t, o.Cluster, top.Component(o.Component).Cluster.Name)
		if o.GetKind() != "Secret" && o.GetKind() != "ConfigMap" {
			continue
		}
		for name, value := range valuesOf(t, o) {
			where := o.Cluster + " " + o.GetKind() + "/" + o.GetName() + " " + name
			for _, key := range keys {
				require.False(t, bytes.Contains(value, key), "%s has the key of an authority", where)
			}
			if bytes.Contains(value, state.ServiceAccount.Key) || bytes.Contains(value, state.ServiceAccount.Public) {
				holders[o.Cluster] = true
			}
			for leaf, pair := range state.Leaves {
				if leaf.Cluster != o.Cluster {
					require.False(t, bytes.Contains(value, pair.Key), "%s has the key of %s on %s", where, leaf.Secret, leaf.Cluster)
				}
			}
		}
	}
	require.Equal(t, map[string]bool{"eu": true, "us": true}, holders)
}

// Every bundle that a pod mounts exists on its cluster, and no other.
func TestEachClusterGetsTheBundlesItReads(t *testing.T) {
	top, _, objects := rendered(t, threePlaces)
	got := map[string][]string{}
	for _, o := range objects {
		if o.GetKind() == "ConfigMap" && o.GetName() == top.Object(topology.CAPart) {
			for name := range valuesOf(t, o) {
				got[o.Cluster] = append(got[o.Cluster], name)
			}
			slices.Sort(got[o.Cluster])
		}
	}
	all := []string{"client.crt", "etcd.crt", "requestheader.crt", "server.crt"}
	require.Equal(t, map[string][]string{"eu": all, "us": all, "ap": {"client.crt", "server.crt"}}, got)
	for _, c := range top.Components {
		for _, ca := range top.Bundles(c) {
			require.Contains(t, got[c.Cluster.Name], string(ca)+".crt", c.ID())
		}
	}
}

// Objects of front-proxies have the region of their cluster as a label; pods get it from their node, so that a change
// of the region rolls nothing.
func TestRegionsOfFrontProxies(t *testing.T) {
	_, _, objects := rendered(t, strings.Replace(threePlaces, "{name: ap,", "{name: ap, region: asia,", 1))
	found := 0
	for _, o := range objects {
		want := ""
		if o.Component == "front-proxy/edge" {
			want, found = "asia", found+1
		}
		require.Equal(t, want, o.GetLabels()[corev1.LabelTopologyRegion], o.GetName())
		if pod, ok := podOf(t, o); ok {
			require.NotContains(t, pod.Labels, corev1.LabelTopologyRegion)
		}
	}
	require.NotZero(t, found)
}
