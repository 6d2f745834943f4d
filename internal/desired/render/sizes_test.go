package render_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// The golden shows what each component requests, may use and stores, by size.
func TestSizes(t *testing.T) {
	all := map[v1alpha1.Size]map[string]any{}
	for _, size := range v1alpha1.Sizes {
		_, _, objects := rendered(t, fmt.Sprintf(`spec:
  size: %s
  cacheServer: {etcd: {managed: {}}}
  virtualWorkspaces: [{name: one}]
  frontProxies: [{name: main}, {name: own, resources: {requests: {cpu: 10m}}}]
`, size))
		of := map[string]any{}
		for _, o := range objects {
			pod, ok := podOf(t, o)
			if !ok {
				continue
			}
			c := pod.Spec.Containers[0]
			shown := map[string]any{"resources": c.Resources}
			for _, arg := range c.Args {
				if strings.HasPrefix(arg, "--quota-backend-bytes=") {
					shown["quota"] = arg
				}
			}
			claims, _, err := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
			require.NoError(t, err)
			for _, claim := range claims {
				shown["storage"], _, err = unstructured.NestedString(claim.(map[string]any), "spec", "resources", "requests", "storage")
				require.NoError(t, err)
			}
			of[string(o.Component)] = shown
		}
		require.Len(t, of, 7)
		all[size] = of
	}
	text, err := yaml.Marshal(all)
	require.NoError(t, err)
	testutil.Golden(t, "sizes.yaml", text)
}

// Without a size, only what the setup file says has a limit.
func TestNoSizeHasNoLimits(t *testing.T) {
	_, _, objects := rendered(t, "spec: {cacheServer: {}}")
	pods := 0
	for _, o := range objects {
		if pod, ok := podOf(t, o); ok {
			pods++
			require.Empty(t, pod.Spec.Containers[0].Resources.Limits, o.GetName())
			require.NotContains(t, strings.Join(pod.Spec.Containers[0].Args, " "), "quota-backend-bytes")
		}
	}
	require.Equal(t, 4, pods)
}
