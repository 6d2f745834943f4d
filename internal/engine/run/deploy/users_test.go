package deploy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const (
	fleet = runtest.Minimal + `spec:
  workloads:
    apis: [services]
    clusters: [{name: edge, context: edge, syncMode: None}, {name: east, context: east, syncMode: None}]
`
	edgeUser = "kcpctl:syncer:demo:edge"
	eastUser = "kcpctl:syncer:demo:east"
)

// user returns the user with the rights of the syncer of a cluster in kcp, or "".
func (w *world) user(t *testing.T, name string) string {
	t.Helper()
	for _, it := range w.Runtime.InWorkspaces() {
		if it.Workspace == "root:compute" && it.Kind == "ClusterRoleBinding" && it.Name == name {
			subjects, _, _ := unstructured.NestedSlice(it.Live.Object, "subjects")
			require.Len(t, subjects, 1)
			return subjects[0].(map[string]any)["name"].(string)
		}
	}
	return ""
}

// becomes continues with another setup file.
func (w *world) becomes(t *testing.T, text string) {
	t.Helper()
	top := topologytest.Build(t, text)
	w.Runtime.Use(top)
	w.Topology, w.Up.Topology = top, top
}

// The certificate of the syncer of a removed cluster is valid until it expires: another cluster with the name must not
// give it its rights.
func TestAUserWhoHasLostItsRightsDoesNotGetThemAgain(t *testing.T) {
	without := strings.Replace(fleet, "{name: edge, context: edge, syncMode: None}, ", "", 1)
	inWorld(t, fleet, func(t *testing.T, w *world) {
		w.MustRun(t)
		require.Equal(t, []string{edgeUser, eastUser}, []string{w.user(t, edgeUser), w.user(t, eastUser)})

		w.becomes(t, without)
		w.Runtime.On("Finish", func() error { return errors.New("interrupted") })
		_, err := w.Run(t)
		require.ErrorContains(t, err, "interrupted")
		w.Runtime.On("Finish", nil)
		w.MustRun(t)
		require.Empty(t, w.user(t, edgeUser), "the rights go with the cluster")

		w.becomes(t, fleet)
		w.MustRun(t)
		second := w.user(t, edgeUser)
		require.Regexp(t, "^"+edgeUser+":[a-z0-9]{8}$", second)
		require.Equal(t, eastUser, w.user(t, eastUser), "the other cluster keeps its user")
		require.Equal(t, second, w.Runtime.PKI().User(w.Topology.Component("cluster/edge")), "kubeconfig --syncer mints for it")
		w.MustRun(t)
		require.Equal(t, second, w.user(t, edgeUser))

		w.becomes(t, without)
		w.MustRun(t)
		w.becomes(t, fleet)
		w.MustRun(t)
		third := w.user(t, edgeUser)
		require.Regexp(t, "^"+edgeUser+":[a-z0-9]{8}$", third)
		require.NotEqual(t, second, third)
	})
}

// A controller that syncs the cluster itself has no use for the rights of a syncer.
func TestAUserEndsWithTheModeThatNeedsIt(t *testing.T) {
	inWorld(t, fleet, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.becomes(t, strings.Replace(fleet, "context: edge, syncMode: None", "context: edge", 1))
		w.MustRun(t)
		require.Empty(t, w.user(t, edgeUser))
		w.becomes(t, fleet)
		w.MustRun(t)
		require.NotEqual(t, edgeUser, w.user(t, edgeUser))
	})
}

// A run that is limited to other components leaves the cluster that the file no longer has, and its user.
func TestALimitedRunEndsNoUser(t *testing.T) {
	inWorld(t, fleet, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.becomes(t, strings.Replace(fleet, "{name: edge, context: edge, syncMode: None}, ", "", 1))
		w.Up.Options.Only = append(w.Up.Options.Only, "cluster/east")
		w.MustRun(t)
		require.Equal(t, edgeUser, w.user(t, edgeUser))
		w.Up.Options.Only = nil
		w.becomes(t, fleet)
		w.MustRun(t)
		require.Equal(t, edgeUser, w.user(t, edgeUser))
	})
}
