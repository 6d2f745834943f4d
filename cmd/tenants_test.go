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

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
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
	// id is the ID of the installation.
	id string
}

func newTenantWorld(t *testing.T) *tenantWorld {
	t.Helper()
	w := &tenantWorld{rt: bringUp(t), c1: fakeapi.New(t), c2: fakeapi.New(t), file: filepath.Join(t.TempDir(), "kcp.yaml")}
	known, err := w.rt.Record(t.Context())
	require.NoError(t, err)
	w.id = known.Installation
	require.NotEmpty(t, w.id)
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
		{"shop-1", w.id, "1a"}, {"blog-2", w.id, "1a"}, {"shop-3", w.id, "2b"}, {"shop-9", "theirs", "1a"},
	} {
		w.c1.Apply(t, "", "api/v1/namespaces", fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, uid: %s, "+
			"labels: {workloads.kcp.dev/setup: %s, workloads.kcp.dev/workspace: %s}}}", ns.name, ns.name, ns.setup, ns.workspace))
	}
	w.c2.Apply(t, "", "api/v1/namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: default}}")
	return w
}

// knows makes kcp know the path of a workspace.
func (w *tenantWorld) knows() {
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
	for name, knows := range map[string]bool{"kcp answers": true, "kcp does not answer": false} {
		t.Run(name, func(t *testing.T) {
			w := newTenantWorld(t)
			found := "2b, root:team"
			if knows {
				w.knows()
			} else {
				found = "1a, 2b"
			}
			errs, err := w.down(t, "--purge")
			require.NoError(t, err)
			require.Contains(t, errs, "Workloads of workspaces in physical clusters:\n  cluster c1: 3 namespaces of workspaces "+found+"\n")
			require.Contains(t, errs, "cluster c3: cannot be read, so what runs there is not known: ")
			require.Contains(t, errs, "They run on. To remove them with their volumes, first end the syncers, then run:\n  kubectl --kubeconfig ")
			require.Contains(t, errs, "/c1 delete namespaces -l workloads.kcp.dev/setup="+w.id+"\n")
			require.Contains(t, errs, "/c3 delete namespaces -l workloads.kcp.dev/setup="+w.id+"\n")
			require.NotContains(t, errs, "/c2 delete")
			require.Contains(t, errs, "nothing is left but 3 namespaces of workspaces "+found+" in cluster c1 (setup ID "+w.id+"); what is in cluster c3, which cannot be read")
			require.NotContains(t, errs, "theirs")
			require.Len(t, w.namespaces(), 4)
			require.Empty(t, w.c1.Writes(), "nothing is written to the cluster")
		})
	}
}

// After a purge, nothing says which namespaces were those of the setup: all are listed by their IDs.
func TestDownAfterAPurgeListsAllSetups(t *testing.T) {
	w := newTenantWorld(t)
	_, err := w.down(t, "--purge")
	require.NoError(t, err)
	errs, err := w.down(t)
	require.NoError(t, err)
	require.Contains(t, errs, "cluster c1: 3 namespaces of workspaces 1a, 2b, of the setup with the ID "+w.id+"\n")
	require.Contains(t, errs, "cluster c1: 1 namespace of workspace 1a, of the setup with the ID theirs\n")
	require.Contains(t, errs, "/c1 delete namespaces -l workloads.kcp.dev/setup=ID\n")
}

// A cluster that is added has namespaces of this setup and of another one.
func TestClusterAddShowsWhatIsThere(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster string
		want    string
	}{
		"both": {"c1", `note: cluster "c1" already has 3 namespaces of workspaces 2b, root:team of this setup. Objects of workspaces that still have them are adopted. ` +
			"Others are shown as orphans: they remain until a user releases them\n" +
			`note: cluster "c1" has 1 namespace of workspace root:team of the setup with the ID theirs, and not of this one. They stay as they are` + "\n"},
		"nothing":    {"c2", ""},
		"unreadable": {"c3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenantWorld(t)
			w.knows()
			env, _, errs := fakeEnv()
			openAs(env, w.rt)
			s, err := openSetup(t.Context(), env, &setupFlags{file: w.file})
			require.NoError(t, err)
			defer s.close()
			o := &clusterAddOptions{env: env, name: tc.cluster, yes: true}
			require.NoError(t, o.adopts(t.Context(), s))
			require.Equal(t, tc.want, errs.String())
			require.Empty(t, w.c1.Writes())
		})
	}
}

// A cluster with workloads of this setup, or perhaps of it, is added only if the user agrees.
func TestClusterAddAsks(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster, answer string
		asked           bool
		err             error
	}{
		"yes":     {"c1", "y\n", true, nil},
		"no":      {"c1", "n\n", true, errDeclined},
		"nothing": {"c2", "", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenantWorld(t)
			w.knows()
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
	list := func(_ context.Context, gr schema.GroupResource, do func(*unstructured.Unstructured)) error {
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
		env.printLeaves(t.Context(), c.Workspace, name, "stay in", list)
		require.Equal(t, want, errs.String())
	}
}
