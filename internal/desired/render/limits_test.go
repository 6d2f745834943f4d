package render_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// Limits are flags of the controller, unless they are the default: a controller does not restart because a release has
// new defaults.
func TestLimitsOfWorkspaces(t *testing.T) {
	for limits, want := range map[string]string{
		"": "",
		"limits: {objectsPerWorkspace: 10000, bytesPerWorkspace: 256Mi}": "",
		"limits: {objectsPerWorkspace: 500, bytesPerWorkspace: 8Mi}":     "--max-objects-per-workspace=500 --max-bytes-per-workspace=8Mi",
	} {
		t.Run(limits, func(t *testing.T) {
			top := topologytest.Build(t, topologytest.Header+"spec: {workloads: {"+limits+"}}\n")
			objects, err := render.Component(top, pkitest.Issue(t, top, now), top.Component("workloads/controller"))
			require.NoError(t, err)
			for _, o := range objects {
				if pod, ok := podOf(t, o); ok {
					args := strings.Join(pod.Spec.Containers[0].Args, " ")
					require.Equal(t, want != "", strings.Contains(args, "per-workspace"), args)
					require.Contains(t, args, want)
				}
			}
		})
	}
}
