package cmd

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// tenantWorld is a kcp with three physical clusters. c1 has namespaces of two setups, and c3 does not answer.
type tenantWorld struct {
	rt   *fakeruntime.Runtime
	c1   *fakeapi.Server
	c2   *fakeapi.Server
	file string
}

func newTenantWorld(t *testing.T) *tenantWorld {
	t.Helper()
	w := &tenantWorld{rt: bringUp(t), c1: fakeapi.New(t), c2: fakeapi.New(t), file: filepath.Join(t.TempDir(), "kcp.yaml")}
	var clusters []string
	for i, server := range []string{w.c1.URL, w.c2.URL, ""} {
		name, mode := fmt.Sprintf("c%d", i+1), "Push"
		if name == "c1" {
			mode = "None"
		}
		kubeconfig := filepath.Join(t.TempDir(), name)
		clusters = append(clusters, fmt.Sprintf("{name: %s, kubeconfig: %s, syncMode: %s}", name, kubeconfig, mode))
		if server == "" {
			continue
		}
		require.NoError(t, os.WriteFile(kubeconfig, []byte(strings.ReplaceAll(`{apiVersion: v1, kind: Config, current-context: a,
  contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: {server: "URL"}}], users: [{name: a, user: {token: x}}]}`,
			"URL", server)), 0o600))
	}
	require.NoError(t, os.WriteFile(w.file, []byte(topologytest.Header+"spec: {workloads: {clusters: ["+strings.Join(clusters, ", ")+"]}}\n"), 0o600))
	for _, ns := range []struct{ name, setup, workspace string }{
		{"shop-1", "ours", "1a"}, {"blog-2", "ours", "1a"}, {"shop-3", "ours", "2b"}, {"shop-9", "theirs", "1a"},
	} {
		w.c1.Apply(t, "", "api/v1/namespaces", fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, uid: %s, "+
			"labels: {workloads.kcp.dev/setup: %s, workloads.kcp.dev/workspace: %s}}}", ns.name, ns.name, ns.setup, ns.workspace))
	}
	w.c2.Apply(t, "", "api/v1/namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: default}}")
	return w
}

// forgets makes kcp not answer for the compute workspace.
func (w *tenantWorld) forgets() {
	w.rt.Kcp.Always("GET /clusters/root:compute/apis/workloads.kcp.dev/v1alpha1", fakekcp.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "shard is down"))
}

// knows makes kcp know the ID of the setup, and the path of a workspace.
func (w *tenantWorld) knows() {
	const clusters = "GET /clusters/root:compute/apis/workloads.kcp.dev/v1alpha1"
	w.rt.Kcp.Always(clusters, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"resources": []any{map[string]any{"name": "clusters", "kind": "Cluster"}}}})
	w.rt.Kcp.Always(clusters+"/clusters", fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
		"apiVersion": "workloads.kcp.dev/v1alpha1", "kind": "ClusterList", "metadata": map[string]any{}, "items": []any{map[string]any{
			"apiVersion": "workloads.kcp.dev/v1alpha1", "kind": "Cluster", "metadata": map[string]any{
				"name": "c1", "annotations": map[string]any{"workloads.kcp.dev/setup-id": "ours", kcpapi.AnnotationCluster: "other"},
			},
		}},
	}})
	team := kcpapi.LogicalCluster.New("cluster")
	team.SetAnnotations(map[string]string{kcpapi.AnnotationPath: "root:team"})
	w.rt.Kcp.Always("GET /clusters/1a/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", fakekcp.Answer{Code: http.StatusOK, Body: team.Object})
}

// down runs the command.
func (w *tenantWorld) down(t *testing.T, args ...string) (string, error) {
	t.Helper()
	env, _, errs := fakeEnv()
	openAs(env, w.rt)
	root := newRootCmd(env)
	root.SetArgs(append([]string{"down", "--yes", "-f", w.file}, args...))
	err := root.ExecuteContext(t.Context())
	return errs.String(), err
}

func (w *tenantWorld) namespaces() []string { return w.c1.Names("", "api/v1/namespaces") }

func TestDownKeepsWorkloads(t *testing.T) {
	w := newTenantWorld(t)
	w.knows()
	errs, err := w.down(t, "--purge")
	require.NoError(t, err)
	require.Contains(t, errs, "Workloads of workspaces in physical clusters:\n  cluster c1: 3 namespaces of workspaces 2b, root:team\n")
	require.Contains(t, errs, "cluster c3: cannot be read, so what runs there is not known: ")
	require.Contains(t, errs, "What runs there stays, and runs on. To remove it with its volumes, run:\n  kcpctl down --purge-workloads -f ")
	require.Contains(t, errs, "If kcp does not answer, add --setup-id ours\n")
	require.Contains(t, errs, "nothing is left but 3 namespaces of workspaces 2b, root:team in cluster c1 (setup ID ours); what is in cluster c3, which cannot be read")
	require.NotContains(t, errs, "theirs")
	require.Len(t, w.namespaces(), 4)
	require.Empty(t, w.c1.Writes(), "nothing is written to the cluster")
}

func TestDownPurgesWorkloadsOfThisSetupOnly(t *testing.T) {
	w := newTenantWorld(t)
	w.knows()
	errs, err := w.down(t, "--purge-workloads", "--purge")
	require.NoError(t, err)
	require.Equal(t, []string{"/shop-9"}, w.namespaces())
	require.Contains(t, errs, "3 namespaces removed; cluster c3 cannot be read")
	require.Contains(t, errs, "nothing is left but what is in cluster c3")
	require.NotContains(t, errs, "What runs there stays")
	require.Contains(t, errs, "Stop the syncer of cluster c1 first: ")

	require.NoError(t, os.WriteFile(w.file, []byte(topologytest.Header), 0o600))
	_, err = w.down(t, "--purge-workloads")
	require.ErrorContains(t, err, "has no spec.workloads.clusters")
}

// The command was interrupted after it had removed all workloads: it continues without an ID.
func TestDownGoesOnWithoutWorkloads(t *testing.T) {
	w := newTenantWorld(t)
	w.forgets()
	for _, ns := range w.namespaces() {
		w.c1.Delete("", "api/v1/namespaces", "", strings.TrimPrefix(ns, "/"))
	}
	text, err := os.ReadFile(w.file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.file, []byte(regexp.MustCompile(`, \{name: c3[^}]*\}`).ReplaceAllString(string(text), "")), 0o600))
	errs, err := w.down(t, "--purge-workloads", "--purge")
	require.NoError(t, err)
	require.Contains(t, errs, "nothing is left\n")
}

// Without kcp, it is not known which namespaces are those of the setup: nothing is removed unless the user says it.
func TestDownPurgesWorkloadsWithoutKcp(t *testing.T) {
	for name, tc := range map[string]struct {
		knows bool
		args  string
		code  int
		want  string
		hint  string
		left  []string
	}{
		"no ID": {false, "", clierr.Failed, "is not known; nothing was removed",
			"cluster c1: 3 namespaces of workspaces 1a, 2b, of the setup with the ID ours\n  cluster c1: 1 namespace of workspace 1a, of the setup with the ID theirs", nil},
		"an ID":        {false, "ours", 0, "", "", []string{"/shop-9"}},
		"another ID":   {true, "theirs", clierr.BadInput, `the ID of kcp "demo" is ours, and not theirs; nothing was removed`, "remove --setup-id", nil},
		"the same ID":  {true, "ours", 0, "", "", []string{"/shop-9"}},
		"kcp knows it": {true, "", 0, "", "", []string{"/shop-9"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenantWorld(t)
			w.forgets()
			if tc.knows {
				w.knows()
			}
			_, err := w.down(t, "--purge-workloads", "--setup-id", tc.args)
			if tc.left != nil {
				require.NoError(t, err)
				require.Equal(t, tc.left, w.namespaces())
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.Equal(t, tc.code, clierr.Code(err))
			require.Contains(t, clierr.Hint(err), tc.hint)
			require.Len(t, w.namespaces(), 4)
			require.Empty(t, w.rt.Calls(), "nothing of kcp is removed")
		})
	}
}

// A namespace that the cluster does not delete is named. The others are deleted.
func TestDownNamesNamespacesThatStay(t *testing.T) {
	w := newTenantWorld(t)
	w.knows()
	w.c1.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/shop-3") {
			return http.StatusForbidden, "not allowed"
		}
		return 0, ""
	})
	errs, err := w.down(t, "--purge-workloads", "--purge")
	require.NoError(t, err)
	require.Equal(t, []string{"/shop-3", "/shop-9"}, w.namespaces())
	require.Contains(t, errs, "2 namespaces removed; namespace shop-3 in cluster c1: ")
	require.Contains(t, errs, "; cluster c3 cannot be read: ")
	require.Contains(t, errs, "nothing is left but 1 namespace of workspace 2b in cluster c1 (setup ID ours)")
}

func TestIDOfTheSetup(t *testing.T) {
	for name, tc := range map[string]struct {
		c1, c2  map[string]string
		compute string
		want    string
		err     string
	}{
		"noted by the controller": {
			map[string]string{"workloads.kcp.dev/setup-id": "x", "kcp.io/cluster": "y"}, map[string]string{"workloads.kcp.dev/setup-id": "x"}, "z", "x", "",
		},
		"not noted yet": {map[string]string{"kcp.io/cluster": "y"}, nil, "z", "y", ""},
		"no Clusters":   {nil, nil, "z", "z", ""},
		"ambiguous":     {map[string]string{"kcp.io/cluster": "y"}, map[string]string{"workloads.kcp.dev/setup-id": "x"}, "", "", "different IDs of the setup: x, y"},
		"nothing":       {nil, nil, "", "", "it does not exist, or has no ID"},
	} {
		t.Run(name, func(t *testing.T) {
			c, f := newCompute(t)
			f.objects["root:compute Cluster/c1"].SetAnnotations(tc.c1)
			f.objects["root:compute Cluster/c2"].SetAnnotations(tc.c2)
			if tc.compute != "" {
				f.put(t, "root:compute", "{apiVersion: core.kcp.io/v1alpha1, kind: LogicalCluster, metadata: {name: cluster, annotations: {kcp.io/cluster: "+tc.compute+"}}}")
			}
			id, err := c.setupID(t.Context())
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, id)
		})
	}
}

// A compute workspace that was created again has Clusters that the controller has not seen yet, or none: the recorded
// ID stays.
func TestRecordedIDOfTheSetup(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"noted by the controller": {map[string]string{"workloads.kcp.dev/setup-id": "x", "kcp.io/cluster": "y"}, "x"},
		"not noted yet":           {map[string]string{"kcp.io/cluster": "y"}, "first"},
		"no Clusters":             {nil, "first"},
	} {
		t.Run(name, func(t *testing.T) {
			c, f := newCompute(t)
			c.recorded = "first"
			if tc.annotations == nil {
				clear(f.objects)
			} else {
				f.objects["root:compute Cluster/c1"].SetAnnotations(tc.annotations)
				delete(f.objects, "root:compute Cluster/c2")
			}
			id, err := c.setupID(t.Context())
			require.NoError(t, err)
			require.Equal(t, tc.want, id)
		})
	}
}

// Between the question and the deletion, a workspace gets a namespace: it stays.
func TestDownDeletesOnlyNamespacesThatWereShown(t *testing.T) {
	w := newTenantWorld(t)
	w.knows()
	env, _, _ := fakeEnv()
	openAs(env, w.rt)
	s, err := openSetup(t.Context(), env, &setupFlags{file: w.file})
	require.NoError(t, err)
	defer s.close()
	o := &downOptions{env: env, purgeWorkloads: true}
	found, err := o.tenants(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, " This deletes 3 namespaces of workspaces in cluster c1, with everything that runs there, and with its volumes: their data is lost.",
		o.losses(found))
	found.agree()
	w.c1.Apply(t, "", "api/v1/namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: late, uid: late, "+
		"labels: {workloads.kcp.dev/setup: ours, workloads.kcp.dev/workspace: 1a}}}")
	_, err = found.Remove(t.Context(), func(string) {})
	require.NoError(t, err)
	require.Equal(t, []string{"/late", "/shop-9"}, w.namespaces())
}

// A cluster that is added has namespaces of this setup and of another one.
func TestClusterAddShowsWhatIsThere(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster string
		knows   bool
		want    string
	}{
		"both": {"c1", true, `note: cluster "c1" already has 3 namespaces of workspaces 2b, root:team of this setup. Objects of workspaces that still have them are adopted. ` +
			"Others are shown as orphans: they remain until a user releases them\n" +
			`note: cluster "c1" has 1 namespace of workspace root:team of the setup with the ID theirs, and not of this one. They stay as they are` + "\n"},
		"nothing":    {"c2", true, ""},
		"unreadable": {"c3", true, ""},
		"kcp does not answer": {"c1", false, `note: cluster "c1" has 3 namespaces of workspaces 1a, 2b of the setup with the ID ours. Whether it is this one is not known yet: ` +
			"REASON\n" + `note: cluster "c1" has 1 namespace of workspace 1a of the setup with the ID theirs. Whether it is this one is not known yet: ` + "REASON\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenantWorld(t)
			w.forgets()
			if tc.knows {
				w.knows()
			}
			env, _, errs := fakeEnv()
			openAs(env, w.rt)
			s, err := openSetup(t.Context(), env, &setupFlags{file: w.file})
			require.NoError(t, err)
			defer s.close()
			o := &clusterAddOptions{env: env, name: tc.cluster, yes: true}
			require.NoError(t, o.adopts(t.Context(), s))
			require.Equal(t, tc.want, regexp.MustCompile("(not known yet: ).*").ReplaceAllString(errs.String(), "${1}REASON"))
			require.Empty(t, w.c1.Writes())
		})
	}
}

// A cluster with workloads of this setup, or perhaps of it, is added only if the user agrees.
func TestClusterAddAsks(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster, answer string
		knows, asked    bool
		err             error
	}{
		"yes":       {"c1", "y\n", true, true, nil},
		"no":        {"c1", "n\n", true, true, errDeclined},
		"not known": {"c1", "n\n", false, true, errDeclined},
		"nothing":   {"c2", "", true, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenantWorld(t)
			w.forgets()
			if tc.knows {
				w.knows()
			}
			env, _, errs := fakeEnv()
			env.Streams.In, env.Streams.InTTY, env.Streams.Err.TTY = strings.NewReader(tc.answer), true, true
			openAs(env, w.rt)
			s, err := openSetup(t.Context(), env, &setupFlags{file: w.file})
			require.NoError(t, err)
			defer s.close()
			require.ErrorIs(t, (&clusterAddOptions{env: env, name: tc.cluster}).adopts(t.Context(), s), tc.err)
			require.Equal(t, tc.asked, strings.Contains(errs.String(), "with what runs there?"))
		})
	}
}

// If kcp is gone, the record of the installation has the ID: also if down runs once more.
func TestDownPurgesWorkloadsByTheRecord(t *testing.T) {
	w := newTenantWorld(t)
	w.forgets()
	known, err := w.rt.Record(t.Context())
	require.NoError(t, err)
	known.WorkloadsID = "ours"
	require.NoError(t, w.rt.Finish(t.Context(), &plan.Plan{}, known, plan.Applied{}))
	errs, err := w.down(t)
	require.NoError(t, err)
	require.Contains(t, errs, "cluster c1: 3 namespaces of workspaces 1a, 2b\n")
	require.Len(t, w.namespaces(), 4)
	_, err = w.down(t, "--purge-workloads")
	require.NoError(t, err)
	require.Equal(t, []string{"/shop-9"}, w.namespaces())
}

// Before a cluster is removed by force, the command lists the leaves of that cluster by workspace and API.
func TestClusterRemoveListsWhatStays(t *testing.T) {
	c, f := newCompute(t)
	f.put(t, "1a", "{apiVersion: core.kcp.io/v1alpha1, kind: LogicalCluster, metadata: {name: cluster, annotations: {kcp.io/path: root:team}}}")
	leaf := func(workspace, cluster string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetLabels(map[string]string{"workloads.kcp.dev/cluster": cluster})
		o.SetAnnotations(map[string]string{kcpapi.AnnotationCluster: workspace})
		return o
	}
	kcp := map[string][]*unstructured.Unstructured{
		"deployments.apps": {leaf("1a", "c1"), leaf("1a", "c1"), leaf("1a", "c2"), leaf("2b", "c1")},
		"configmaps":       {leaf("1a", "c1"), {Object: map[string]any{}}},
	}
	each := func(gr schema.GroupResource, do func(*unstructured.Unstructured)) error {
		if gr.Resource == "secrets" {
			return errors.New("shard alpha does not answer")
		}
		for _, o := range kcp[gr.String()] {
			do(o)
		}
		return nil
	}
	for name, want := range map[string]string{
		"c1": `These objects of workspaces stay in cluster "c1":
WORKSPACE   API                OBJECTS
2b          deployments.apps   1
root:team   configmaps         1
root:team   deployments.apps   2
note: which other objects stay in cluster "c1" is not known: secrets: shard alpha does not answer
`,
		"c9": "",
	} {
		env, _, errs := fakeEnv()
		(leaves{env: env, cluster: name, does: "stay in"}).print(t.Context(), c, each)
		require.Equal(t, want, errs.String())
	}
}
