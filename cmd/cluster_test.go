package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
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
func newClusterSession(t *testing.T) (s *session, c *computeSession, f *fakeCompute, errs fmt.Stringer) {
	t.Helper()
	env, _, errs := fakeEnv()
	path := filepath.Join(t.TempDir(), "kcp.yaml")
	require.NoError(t, os.WriteFile(path, []byte(twoClusters), 0o600))
	file, err := setup.Load(path, nil)
	require.NoError(t, err)
	s, err = (&session{env: env, flags: &setupFlags{file: path}, reporter: &reporter{env: env}}).with(file)
	require.NoError(t, err)
	c, f = newCompute(t)
	c.State = pkitest.Issue(t, s.topology, at())
	c.session = s
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
	require.NoError(t, c.cordon(t.Context(), "c1", true))
	after := c.session
	require.True(t, f.unschedulable("c1"))
	text, err := os.ReadFile(s.flags.file)
	require.NoError(t, err)
	require.Contains(t, string(text), "    - name: c1 # the first\n      context: eu\n      unschedulable: true\n")
	require.Equal(t, []string{"Lock", "Unlock"}, s.runtime.(*fakeruntime.Runtime).Calls())

	require.NoError(t, c.cordon(t.Context(), "c1", true))
	require.Same(t, after, c.session, "nothing is to be changed")

	f.objects["root:compute Cluster/c1"].SetAnnotations(map[string]string{"workloads.kcp.dev/drain": "true"})
	require.NoError(t, c.cordon(t.Context(), "c1", false))
	require.False(t, f.unschedulable("c1"))
	require.Empty(t, f.objects["root:compute Cluster/c1"].GetAnnotations()["workloads.kcp.dev/drain"])
	text, err = os.ReadFile(s.flags.file)
	require.NoError(t, err)
	require.Contains(t, string(text), "unschedulable: false\n")

	f.objects["root:compute Cluster/c2"].SetAnnotations(map[string]string{"workloads.kcp.dev/drain": "true"})
	err = c.cordon(t.Context(), "c2", true)
	require.NoError(t, err)
	require.True(t, f.unschedulable("c2"))
	require.Empty(t, f.objects["root:compute Cluster/c2"].GetAnnotations(), "what runs there stays")
	f.objects["root:compute Cluster/c2"].SetAnnotations(map[string]string{"workloads.kcp.dev/drain": "true"})
	unstructured.RemoveNestedField(f.objects["root:compute Cluster/c2"].Object, "spec", "unschedulable")
	err = c.cordon(t.Context(), "c2", true)
	require.NoError(t, err)
	require.True(t, f.unschedulable("c2"))
	require.Empty(t, f.objects["root:compute Cluster/c2"].GetAnnotations(), "an old drain does not begin again")

	err = c.cordon(t.Context(), "c2", false)
	require.NoError(t, err)
	require.False(t, f.unschedulable("c2"), "it is not in the file")

	err = c.cordon(t.Context(), "c3", true)
	require.ErrorContains(t, err, `the cluster "c3" is not registered yet`)
	err = c.cordon(t.Context(), "c22", true)
	require.ErrorContains(t, err, `there is no cluster "c22"`)
	require.Contains(t, clierr.Hint(err), "did you mean c2?")
}

// Other edits of the setup file wait for up.
func TestClusterCordonChangesNothingElse(t *testing.T) {
	s, c, f, _ := newClusterSession(t)
	text, err := os.ReadFile(s.flags.file)
	require.NoError(t, err)
	text = []byte(strings.Replace(string(text), "context: eu\n", "context: eu\n      evictAfter: 5m\n      labels: {region: us}\n", 1))
	require.NoError(t, os.WriteFile(s.flags.file, text, 0o600))
	file, err := setup.Load(s.flags.file, nil)
	require.NoError(t, err)
	rt := s.runtime
	s, err = s.with(file)
	require.NoError(t, err)
	s.runtime, c.session = rt, s
	live := f.objects["root:compute Cluster/c1"]
	live.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "kcpctl", Operation: metav1.ManagedFieldsOperationApply,
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{"f:kcpctl.dev/setup":{}}},"f:spec":{"f:syncMode":{}}}`)},
	}})
	before := live.DeepCopy()
	for _, on := range []bool{true, false} {
		var applied []*unstructured.Unstructured
		f.applied = func(o *unstructured.Unstructured) { applied = append(applied, o) }
		require.NoError(t, c.cordon(t.Context(), "c1", on))
		require.Equal(t, on, f.unschedulable("c1"))
		require.Len(t, applied, 1)
		want := map[string]any{"syncMode": "Push"}
		if on {
			want["unschedulable"] = true
		}
		require.Equal(t, want, applied[0].Object["spec"])
		require.Equal(t, map[string]string{"kcpctl.dev/setup": "demo"}, applied[0].GetLabels(), "labels of others stay theirs")
	}
	require.Equal(t, before.Object, live.Object)
}

// schedulable sets the condition Schedulable of a Cluster, as the controller does.
func schedulable(o *unstructured.Unstructured, reason, message string) {
	_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{
		"type": "Schedulable", "status": "False", "reason": reason, "message": message, "observedGeneration": o.GetGeneration(), "lastTransitionTime": nil,
	}}, "status", "conditions")
}

func TestClusterDrain(t *testing.T) {
	_, c, f, errs := newClusterSession(t)
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
		err := c.drain(t.Context(), "c1", time.Minute)
		require.NoError(t, err)
		require.Equal(t, 7, looks)
	})
	require.True(t, f.unschedulable("c1"))
	require.Equal(t, "cluster c1: waits for the controller\ncluster c1: 3 objects in workspaces are still in it\n", errs.String())
}

// A drain that is started again goes on: a moment without the request would end another process that waits for it.
func TestClusterDrainIsContinued(t *testing.T) {
	_, c, f, _ := newClusterSession(t)
	synctest.Test(t, func(t *testing.T) {
		o := f.objects["root:compute Cluster/c2"]
		o.SetAnnotations(map[string]string{"workloads.kcp.dev/drain": "true"})
		schedulable(o, "Drained", "nothing is scheduled to the cluster")
		f.changed = func(o *unstructured.Unstructured) {
			require.Equal(t, "true", o.GetAnnotations()["workloads.kcp.dev/drain"])
		}
		require.NoError(t, c.drain(t.Context(), "c2", time.Minute))
	})
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
		"removed": {
			func(f *fakeCompute) { delete(f.objects, "root:compute Cluster/c1") },
			`cluster "c1" was removed while it was drained`, "kcpctl cluster list", clierr.Conflict,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, c, f, _ := newClusterSession(t)
			synctest.Test(t, func(t *testing.T) {
				looks := 0
				f.read = func() {
					if looks++; looks == 5 {
						tc.change(f)
					}
				}
				err := c.drain(t.Context(), "c1", time.Minute)
				require.ErrorContains(t, err, tc.want)
				require.Contains(t, clierr.Hint(err), tc.hint)
				require.Equal(t, tc.code, clierr.Code(err))
			})
		})
	}
	_, c, _, _ := newClusterSession(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := c.drain(ctx, "c2", time.Minute)
	require.ErrorIs(t, err, context.Canceled)
}

// bringUp brings up a kcp without workloads, and returns its runtime.
func bringUp(t *testing.T) *fakeruntime.Runtime {
	t.Helper()
	before := topologytest.Build(t, topologytest.Header)
	rt := fakeruntime.New(t, before)
	rt.Kcp.ServeObjects()
	_, err := (&deploy.Up{
		Topology: before, Runtime: rt, Setup: []byte("the setup"), Observe: func(run.Event) {}, Now: time.Now, Network: fakeruntime.Network{},
	}).Run(t.Context())
	require.NoError(t, err)
	rt.Forget()
	return rt
}

// openAs makes the commands of an environment use a runtime.
func openAs(env *Env, rt *fakeruntime.Runtime) {
	env.Now = time.Now
	env.Open = func(t *topology.Topology, _ kube.Options) (run.Runtime, error) {
		rt.Use(t)
		return rt, nil
	}
}

// The commands ask kcp through its front-proxy.
func TestClusterCommandsAskKcp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, f, _ := newClusterSession(t)
		rt := bringUp(t)
		const path = "GET /clusters/root:compute/apis/workloads.kcp.dev/v1alpha1"
		items := []any{f.objects["root:compute Cluster/c2"].Object, f.objects["root:compute Cluster/c1"].Object}
		rt.Kcp.Always(path, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"resources": []any{map[string]any{"name": "clusters", "kind": "Cluster"}}}})
		rt.Kcp.Always(path+"/clusters", fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
			"apiVersion": "workloads.kcp.dev/v1alpha1", "kind": "ClusterList", "metadata": map[string]any{}, "items": items,
		}})
		for args, want := range map[string]string{
			"cluster list":   `(?m)^c1 +True .*\nc2 +False +HeartbeatMissed .*\nc3 +Unknown +NotRegistered `,
			"workloads apis": `(?m)^deployments.apps +c1 +Published +v1 +<none>\n +c2 +Incompatible `,
		} {
			env, out, _ := fakeEnv()
			openAs(env, rt)
			root := newRootCmd(env)
			root.SetArgs(append(strings.Fields(args), "-f", s.flags.file))
			require.NoError(t, root.ExecuteContext(t.Context()))
			require.Regexp(t, want, out.String())
		}
		require.Empty(t, rt.Calls(), "they write nothing")
	})
}

func TestClusterAddPrintsTheAPIs(t *testing.T) {
	c, _ := newCompute(t)
	for name, tc := range map[string]struct{ mode, want string }{
		"c1": {modePush, "\ncluster \"c1\" is ready. Workspaces can use these APIs there: deployments.apps, services\n"},
		"c2": {modePush, "\ncluster \"c2\" is ready, but workspaces can use none of its APIs.\nnote: it cannot serve deployments.apps: spec.paused: the field is missing\n"},
	} {
		live, err := c.Cluster(t.Context(), name)
		require.NoError(t, err)
		env, _, errs := fakeEnv()
		o := &clusterAddOptions{env: env, name: name, mode: tc.mode, setup: setupFlags{file: defaultFile}}
		o.printAPIs(live, "root:compute")
		require.Equal(t, tc.want, errs.String())
		o.mode, live.Status.Syncer = modeNone, nil
		o.printAPIs(live, "root:other")
		require.Contains(t, errs.String(), "\n  kcpctl kubeconfig --syncer "+name+" -o kcp.kubeconfig\n"+
			"  kcpctl syncer --cluster-name "+name+" --kcp-kubeconfig kcp.kubeconfig --kubeconfig FILE --workspace root:other\n")
	}
}

// A cluster that was never registered is removed from the file by a run that applies nothing else.
func TestClusterRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _, errs := newClusterSession(t)
		rt := bringUp(t)
		openAs(s.env, rt)
		o := &clusterRemoveOptions{env: s.env, setup: *s.flags, name: "c1", timeout: time.Minute}
		require.NoError(t, o.remove(t.Context(), s))
		require.Equal(t, []string{"Lock", "Save", "Begin", "Finish", "Unlock"}, rt.Calls())
		require.Contains(t, errs.String(), `removed the cluster "c1" from kcp and from `)
		text, err := os.ReadFile(s.flags.file)
		require.NoError(t, err)
		require.Equal(t, strings.Replace(twoClusters, "    - name: c1 # the first\n      context: eu\n", "", 1), string(text))
	})
}

func TestClusterRemoveEmptiesFirst(t *testing.T) {
	s, c, f, _ := newClusterSession(t)
	o := &clusterRemoveOptions{env: s.env, setup: *s.flags, name: "c1", force: true}
	require.NoError(t, o.empty(t.Context(), c))
	require.Same(t, s, c.session)
	require.Equal(t, "true", f.objects["root:compute Cluster/c1"].GetAnnotations()["workloads.kcp.dev/force-removal"])
	require.False(t, f.unschedulable("c1"), "it is not drained")

	o.force = false
	f.changed = func(o *unstructured.Unstructured) { schedulable(o, "Drained", "") }
	require.NoError(t, o.empty(t.Context(), c))
	after := c.session
	require.True(t, f.unschedulable("c1"))
	next, err := o.edited(after)
	require.NoError(t, err)
	require.Equal(t, "eu", next.removed[0].Context, "the run reaches the cluster that it removes")
	require.Equal(t, []string{"c3"}, physicalNames(next))

	o.name = "c2"
	err = o.notInFile(t.Context(), c)
	require.ErrorContains(t, err, `cluster "c2" is not in `)
	require.Contains(t, clierr.Hint(err), "kcpctl cluster drain c2")
	o.name = "c4"
	require.ErrorContains(t, o.notInFile(t.Context(), c), `there is no cluster "c4"`)
	o.name = "c3"
	require.NoError(t, o.empty(t.Context(), c))
	require.Same(t, after, c.session, "it was never registered")
}

// A run that is refused before it writes the setup file says nothing about a cluster in it.
func TestClusterAddExplainsWhatIsInTheFile(t *testing.T) {
	before, _, _, _ := newClusterSession(t)
	o := &clusterAddOptions{env: before.env, setup: *before.flags, name: "c9", context: "c9"}
	edited, err := before.file.AddCluster(o.cluster())
	require.NoError(t, err)
	after, err := before.with(edited)
	require.NoError(t, err)
	refused := clierr.New(clierr.Conflict, "wait for the other run", "another run holds the lock")
	add := addition{what: "cluster c9", explain: o.explain}
	write := add.write(before, after)
	require.Equal(t, "wait for the other run", clierr.Hint(add.explained(before, after, refused)))
	require.NoError(t, write())
	require.Contains(t, clierr.Hint(add.explained(before, after, refused)), "wait for the other run; the cluster is in "+o.setup.file+": fix the cause and run kcpctl up")
}

// Variables and the configuration file say where kcp is, and the flags where the physical cluster is.
func TestClusterAddFindsKcp(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	require.NoError(t, os.MkdirAll(filepath.Join(home, "kcpctl"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(home, "kcpctl", "config.yaml"), []byte("context: prod\n"), 0o600))
	path := filepath.Join(home, "kcp.yaml")
	require.NoError(t, os.WriteFile(path, []byte(topologytest.Header), 0o600))
	contexts := func(variable string, args ...string) string {
		env, _, errs := fakeEnv()
		env.Getenv = func(name string) string {
			if name == "KCPCTL_CONTEXT" {
				return variable
			}
			return ""
		}
		got := ""
		env.Open = func(top *topology.Topology, _ kube.Options) (run.Runtime, error) {
			got = top.Home.Context + " " + top.Setup.Spec.Workloads.Clusters[0].Context
			return nil, errors.New("not in this test")
		}
		require.Equal(t, 1, Main(t.Context(), append([]string{"cluster", "add", "c1", "-f", path}, args...), env), errs.String())
		return got
	}
	require.Equal(t, "prod eu", contexts("", "--context", "eu"))
	require.Equal(t, "home eu", contexts("home", "--context", "eu"))
	require.Equal(t, "home ", contexts("home"), "the current context")
}

// What needs kcp does not begin another installation where kcp is not.
func TestAdditionsNeedKcp(t *testing.T) {
	for name, args := range map[string][]string{
		"cluster": {"cluster", "add", "c1", "--context", "eu"},
		"agent":   {"agent", "add", "w", "--workspace", "root:w", "--publish", "widget.example.com", "--cluster", "services"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kcp.yaml")
			text := fmt.Appendf(nil, withComments, serviceCluster(t))
			require.NoError(t, os.WriteFile(path, text, 0o600))
			file, err := setup.Load(path, nil)
			require.NoError(t, err)
			rt := fakeruntime.New(t, topology.Build(file.Setup))
			env, _, errs := fakeEnv()
			openAs(env, rt)
			require.Equal(t, 1, Main(t.Context(), append(args, "-f", path), env), errs.String())
			require.Contains(t, errs.String(), "which is not ready: ")
			require.Contains(t, errs.String(), "nothing was changed")
			require.Contains(t, errs.String(), "run kcpctl up -f "+path+", which starts ")
			require.Empty(t, rt.Calls())
			now, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(text), string(now))
		})
	}
}
