package cmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const twoClusters = topologytest.Header + `spec:
  workloads:
    clusters:
    - name: c1 # the first
      context: eu
    - {name: c3, context: us}
`

// newClusterSession is a session with a setup file, in which c1 of newCompute is and c2 is not.
func newClusterSession(t *testing.T) (s *session, c *compute, f *fakeCompute, errs fmt.Stringer) {
	t.Helper()
	env, _, errs := fakeEnv()
	path := filepath.Join(t.TempDir(), "kcp.yaml")
	require.NoError(t, os.WriteFile(path, []byte(twoClusters), 0o600))
	file, err := setup.Load(path, nil)
	require.NoError(t, err)
	s, err = (&session{env: env, flags: &setupFlags{file: path}, reporter: &reporter{env: env}}).with(file)
	require.NoError(t, err)
	c, f = newCompute(t)
	c.state = pkitest.Issue(t, s.topology, at())
	rt := fakeruntime.New(t, s.topology)
	home, err := render.Namespace(s.topology, s.topology.Home)
	require.NoError(t, err)
	require.NoError(t, rt.Apply(t.Context(), []plan.Item{{Ref: home.Ref(), Component: home.Component, Want: home.Unstructured}}, run.PlanOptions{}))
	rt.Forget()
	s.runtime = rt
	return s, c, f, errs
}

func (f *fakeCompute) unschedulable(name string) bool {
	on, _, _ := unstructured.NestedBool(f.objects["root:compute Cluster/"+name].Object, "spec", "unschedulable")
	return on
}

func TestClusterCordon(t *testing.T) {
	s, c, f, _ := newClusterSession(t)
	after, err := s.cordonCluster(t.Context(), c, "c1", true)
	require.NoError(t, err)
	require.True(t, f.unschedulable("c1"))
	text, err := os.ReadFile(s.flags.file)
	require.NoError(t, err)
	require.Contains(t, string(text), "    - name: c1 # the first\n      context: eu\n      unschedulable: true\n")
	require.Equal(t, []string{"Lock", "Unlock"}, s.runtime.(*fakeruntime.Runtime).Calls())

	again, err := after.cordonCluster(t.Context(), c, "c1", true)
	require.NoError(t, err)
	require.Same(t, after, again, "nothing is to be changed")

	f.objects["root:compute Cluster/c1"].SetAnnotations(map[string]string{"workloads.kcp.dev/drain": "true"})
	_, err = after.cordonCluster(t.Context(), c, "c1", false)
	require.NoError(t, err)
	require.False(t, f.unschedulable("c1"))
	require.Empty(t, f.objects["root:compute Cluster/c1"].GetAnnotations()["workloads.kcp.dev/drain"])
	text, err = os.ReadFile(s.flags.file)
	require.NoError(t, err)
	require.Contains(t, string(text), "unschedulable: false\n")

	_, err = s.cordonCluster(t.Context(), c, "c2", false)
	require.NoError(t, err)
	require.False(t, f.unschedulable("c2"), "it is not in the file")

	_, err = s.cordonCluster(t.Context(), c, "c3", true)
	require.ErrorContains(t, err, `the cluster "c3" is not registered yet`)
	_, err = s.cordonCluster(t.Context(), c, "c22", true)
	require.ErrorContains(t, err, `there is no cluster "c22"`)
	require.Contains(t, clierr.Hint(err), "did you mean c2?")
}

// schedulable sets the condition Schedulable of a Cluster, as the controller does.
func schedulable(o *unstructured.Unstructured, reason, message string) {
	_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{
		"type": "Schedulable", "status": "False", "reason": reason, "message": message, "observedGeneration": o.GetGeneration(), "lastTransitionTime": nil,
	}}, "status", "conditions")
}

func TestClusterDrain(t *testing.T) {
	s, c, f, errs := newClusterSession(t)
	synctest.Test(t, func(t *testing.T) {
		o := f.objects["root:compute Cluster/c1"]
		schedulable(o, "Drained", "of an earlier drain")
		f.changed = func(o *unstructured.Unstructured) { o.SetGeneration(o.GetGeneration() + 1) }
		looks := 0
		f.read = func() {
			switch looks++; looks {
			case 5:
				schedulable(o, "Draining", "3 objects in workspaces are still in it. They move.")
			case 7:
				schedulable(o, "Drained", "nothing is scheduled to the cluster")
			}
		}
		_, err := s.drainCluster(t.Context(), c, "c1", time.Minute)
		require.NoError(t, err)
		require.Equal(t, 7, looks)
	})
	require.True(t, f.unschedulable("c1"))
	require.Equal(t, "cluster c1: waits for the controller\ncluster c1: 3 objects in workspaces are still in it\n", errs.String())
}

func TestClusterDrainFails(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(f *fakeCompute)
		want   string
		hint   string
		code   int
	}{
		"time": {
			func(f *fakeCompute) {
				schedulable(f.objects["root:compute Cluster/c1"], "Draining", "1 objects are still in it")
			},
			`cluster "c1": not drained after 1m0s: 1 objects are still in it`, "kcpctl cluster uncordon c1", clierr.NotReady,
		},
		"uncordoned": {
			func(f *fakeCompute) {
				unstructured.RemoveNestedField(f.objects["root:compute Cluster/c1"].Object, "spec", "unschedulable")
			},
			`cluster "c1" was uncordoned while it was drained`, "rerun", clierr.Conflict,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, f, _ := newClusterSession(t)
			synctest.Test(t, func(t *testing.T) {
				looks := 0
				f.read = func() {
					if looks++; looks == 5 {
						tc.change(f)
					}
				}
				_, err := s.drainCluster(t.Context(), c, "c1", time.Minute)
				require.ErrorContains(t, err, tc.want)
				require.Contains(t, clierr.Hint(err), tc.hint)
				require.Equal(t, tc.code, clierr.Code(err))
			})
		})
	}
	s, c, _, _ := newClusterSession(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.drainCluster(ctx, c, "c2", time.Minute)
	require.ErrorIs(t, err, context.Canceled)
}
