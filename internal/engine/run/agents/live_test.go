package agents_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

const (
	used       = "agent/widgets: workspaces have 1 of the objects that it synchronizes: 1 widgets.example.com in root:team-a; "
	notKnown   = "agent/widgets: whether workspaces have objects of its APIs is not known: "
	notRunning = "it does not run, so they would keep its finalizer; it was not removed"
	// gizmos is the path of another APIExport on the root shard.
	gizmos = "/services/apiexport/def/gizmos"
)

// replaced is the setup with one text replaced.
func replaced(t *testing.T, old, text string) string {
	t.Helper()
	require.Contains(t, withAgents, old)
	return strings.Replace(withAgents, old, text, 1)
}

// serves lets an APIExport gizmos serve Widgets.
func (w *world) serves(names ...string) {
	w.exports("root:widgets", "gizmos", gizmos, "widgets")
	served := metav1.APIGroup{PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v1"}}
	w.Runtime.Kcp.Always("GET "+gizmos+"/clusters/*/apis/example.com", fakekcp.Answer{Code: http.StatusOK, Body: served})
	w.widgets(gizmos, names...)
	w.secrets(gizmos)
}

// The APIExport that has the objects is the one that was applied, not the one in the setup file.
func TestAnotherAPIExportOfAnAgent(t *testing.T) {
	other := replaced(t, "    workspace: root:widgets\n", "    workspace: root:widgets\n    apiExport: gizmos\n")
	inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
		w.serves()
		w.File(t, other)
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, used+
			"it would leave them, because it no longer publishes through APIExport widgets in root:widgets; nothing was changed")
		require.Contains(t, clierr.Hint(err), "revert the change, remove paused of the agent from the setup file, and run kcpctl up, which starts it")
		require.Empty(t, w.Runtime.Calls())

		widgets()
		w.MustRun(t)
		require.True(t, w.MustRun(t).Plan.Empty())

		w.serves("first")
		w.without(t)
		_, err = w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, used+notRunning)
	})
	inAgents(t, func(t *testing.T, w *world, _ func(...string)) {
		w.serves()
		w.File(t, other)
		w.Up.Options.Orphan = []topology.ID{agentWidgets}
		w.MustRun(t)
		require.Len(t, w.Runtime.Kcp.Requests("PATCH "+firstURL), 1, "it loses the finalizer")
		w.Up.Options.Orphan = nil
		require.True(t, w.MustRun(t).Plan.Empty())
	})
}

// What is missing in kcp shows nothing about objects in workspaces.
func TestAgentWithoutItsAPIExport(t *testing.T) {
	for name, want := range map[string]string{
		"root:widgets/apiexportendpointslices/widgets": "APIExportEndpointSlice widgets in root:widgets does not exist",
		"root:widgets/apiexports/widgets":              "APIExport widgets in root:widgets does not exist",
	} {
		t.Run(name, func(t *testing.T) {
			inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
				widgets()
				w.Runtime.Kcp.PutIn(name, nil)
				w.without(t)
				_, err := w.Run(t)
				runtest.RequireError(t, err, clierr.Failed, notKnown+want)
				require.Contains(t, clierr.Hint(err), "or pass --orphan agent/widgets to go on anyway")
				require.Empty(t, w.Runtime.Calls())
			})
		})
	}
}

// After kcpctl down, nothing is left of an agent but the record, and the objects in workspaces that wait for it.
func TestAgentAfterDown(t *testing.T) {
	down := func(t *testing.T, w *world, purge bool) error {
		d := deploy.Down{Runtime: w.Runtime, Topology: w.Topology, Observe: w.Observe(t), Now: time.Now, Purge: purge}
		return d.Run(t.Context())
	}
	inAgents(t, func(t *testing.T, w *world, _ func(...string)) {
		require.NoError(t, down(t, w, false))
		w.without(t)
		_, err := w.Run(t)
		require.Equal(t, clierr.Failed, clierr.Code(err))
		require.ErrorContains(t, err, notKnown)
		require.Contains(t, clierr.Hint(err), "if kcp does not run, revert the agent in the setup file, and run kcpctl up first")
		require.Empty(t, w.Runtime.Calls())
		require.ErrorContains(t, down(t, w, true), notKnown, "a purge would leave the copies")

		w.File(t, withAgents) // as the hint says
		w.MustRun(t)
		w.without(t)
		_, err = w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, used+notRunning)

		w.File(t, withAgents)
		require.NoError(t, down(t, w, false))
		w.without(t)
		w.Up.Options.Orphan = []topology.ID{agentWidgets}
		w.MustRun(t)
		require.Len(t, w.Runtime.Kcp.Requests("PATCH "+firstURL), 1, "it loses the finalizer when kcp runs")
		w.Up.Options.Orphan = nil
		require.True(t, w.MustRun(t).Plan.Empty())
	})
}

// A purge that is interrupted after kcp was removed continues with the same command: its agents are gone, so that it
// does not ask kcp for their objects again.
func TestInterruptedPurgeWithAgents(t *testing.T) {
	boom := errors.New("boom")
	for _, call := range []string{"Purge", "Delete " + string(topology.RootShard)} {
		t.Run(call, func(t *testing.T) {
			inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
				widgets()
				down := deploy.Down{Runtime: w.Runtime, Topology: w.Topology, Observe: w.Observe(t), Now: time.Now, Purge: true}
				w.Runtime.On(call, func() error { return boom })
				require.ErrorIs(t, down.Run(t.Context()), boom)
				w.Runtime.Kcp.Always(fakekcp.ListClusters, fakekcp.Refuse(http.StatusServiceUnavailable, "", "it is removed"))
				w.Runtime.On(call, func() error { return nil })
				require.NoError(t, down.Run(t.Context()))
				require.Contains(t, w.Runtime.Calls(), "Purge")
			})
		})
	}
}

// An agent that a run has begun to install can have published.
func TestDownAfterAnInterruptedInstallationOfAnAgent(t *testing.T) {
	inWorld(t, withAgents, func(t *testing.T, w *world) {
		boom := errors.New("boom")
		w.Runtime.On("Finish", func() error { return boom })
		_, err := w.Run(t)
		require.ErrorIs(t, err, boom)
		w.Runtime.On("Finish", func() error { return nil })
		d := deploy.Down{Runtime: w.Runtime, Topology: w.Topology, Observe: w.Observe(t), Now: time.Now}
		require.NoError(t, d.Run(t.Context()))
		rec, err := w.Runtime.Record(t.Context())
		require.NoError(t, err)
		require.Contains(t, rec.Agents, agentWidgets)
	})
}

const inCluster = `  clusters: [{name: home, context: prod}, {name: agents, context: prod, namespace: demo-agents}]
  agents:
  - name: widgets
    cluster: `

// Its place is in the record, so that a move is found after kcpctl down, too. Then the hint works.
func TestAgentMoves(t *testing.T) {
	at := func(cluster string) string {
		return replaced(t, "  agents:\n  - name: widgets\n", inCluster+cluster+"\n")
	}
	without := func(t *testing.T, w *world) {
		head, rest, _ := strings.Cut(at("home"), "  - name: widgets")
		_, others, _ := strings.Cut(rest, "  - name: others")
		w.File(t, head+"  - name: others"+others)
	}
	for name, stop := range map[string]bool{"while it runs": false, "after down": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, at("home"), func(t *testing.T, w *world) {
				w.Runtime.Kcp.ServeObjects()
				w.Runtime.Kcp.PutIn("root/workspaces/widgets", &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": "Ready"}}})
				w.exports("root:widgets", "widgets", "")
				w.MustRun(t)
				if stop {
					d := deploy.Down{Runtime: w.Runtime, Topology: w.Topology, Observe: w.Observe(t), Now: time.Now}
					require.NoError(t, d.Run(t.Context()))
				}
				w.File(t, at("agents"))
				_, err := w.Run(t)
				runtest.RequireError(t, err, clierr.Failed, "agent/widgets publishes from namespace kcp of cluster home, and the setup file has "+
					"namespace demo-agents of cluster agents: the copies of objects would stay behind; nothing was changed")
				require.Empty(t, w.Runtime.Calls())

				require.Contains(t, clierr.Hint(err), "or remove the agent from the file, run kcpctl up --orphan agent/widgets, which keeps the objects on both sides, "+
					"and add it again")
				without(t, w)
				w.Up.Options.Orphan = []topology.ID{agentWidgets}
				w.MustRun(t)
				w.Up.Options.Orphan = nil
				w.File(t, at("agents"))
				w.MustRun(t)
			})
		})
	}
}

// An APIBinding of an agent that does not run is not deleted with objects whose finalizer no agent would remove.
func TestObjectsOfAnAgentAreDeletedWhileItRuns(t *testing.T) {
	inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
		w.Runtime.Kcp.Always(fakekcp.ListClusters, list(map[string]any{"metadata": map[string]any{"name": "cluster", "annotations": map[string]any{
			"kcp.io/cluster": "c1", "kcp.io/path": "root:widgets", // which has the APIBinding
		}}}))
		w.without(t)
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, strings.Replace(used, "root:team-a", "root:widgets", 1)+notRunning)
		require.Contains(t, clierr.Hint(err), "add the agent to the setup file again, without paused, and run kcpctl up, which starts it")

		w.Runtime.Edit("Deployment/kcp/demo-agent-widgets", func(o *unstructured.Unstructured) {
			o.Object["spec"].(map[string]any)["replicas"] = int64(1)
		})
		w.Runtime.On("Delete agent/widgets", func() error { widgets(); return nil }) // with their APIBinding
		w.MustRun(t)
	})
}

// A PublishedResource that publishes something else leaves the objects that it has published.
func TestPublishedResourceIsChanged(t *testing.T) {
	const elsewhere = "it would leave them, because PublishedResource widgets publishes something else; nothing was changed"
	for name, tc := range map[string]struct{ from, to, want string }{
		"kind":            {"kind: Widget}", "kind: Gizmo}", elsewhere},
		"projection":      {"kind: Widget}", "kind: Widget}, projection: {plural: things}", elsewhere},
		"synchronization": {"kind: Widget}", "kind: Widget}, synchronization: {enabled: false}", elsewhere},
		"naming":          {`naming: {name: "{{ .ClusterName }}"}, related`, `naming: {name: "x-{{ .ClusterName }}"}, related`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
				w.File(t, replaced(t, tc.from, tc.to))
				_, err := w.Run(t)
				if tc.want == "" {
					require.NoError(t, err)
					require.Empty(t, w.Runtime.Kcp.Requests("PATCH "+firstURL))
					return
				}
				runtest.RequireError(t, err, clierr.Failed, used+tc.want)
				require.Empty(t, w.Runtime.Calls())
				widgets()
				w.MustRun(t)
				require.True(t, w.MustRun(t).Plan.Empty())
			})
		})
	}
	inAgents(t, func(t *testing.T, w *world, _ func(...string)) {
		w.File(t, replaced(t, "kind: Widget}", "kind: Gizmo}"))
		w.Up.Options.Orphan = []topology.ID{agentWidgets}
		w.Runtime.Kcp.Always("PATCH "+firstURL, fakekcp.Refuse(http.StatusServiceUnavailable, "", "x"))
		_, err := w.Run(t)
		require.ErrorContains(t, err, "objects in workspaces may still have the finalizer syncagent.kcp.io/cleanup")
		w.Runtime.Kcp.Always("PATCH "+firstURL, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}})
		w.MustRun(t) // the same command continues, although the PublishedResource has changed
		require.Contains(t, left(w), "obj-state-c1-gadget", "another one publishes it")
		require.NotContains(t, left(w), "obj-state-c1-widget")
		w.Up.Options.Orphan = nil
		require.True(t, w.MustRun(t).Plan.Empty())
	})
}

// While it is not known which related objects have the finalizer, the removal of their agent is not done.
func TestRelatedObjectsOfASlowKcp(t *testing.T) {
	inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
		widgets()
		w.without(t)
		secrets := "GET " + endpoint + "/clusters/*/api/v1/secrets"
		w.Runtime.Kcp.Always(secrets, fakekcp.Refuse(http.StatusServiceUnavailable, "", "slow"))
		_, err := w.Run(t)
		require.Equal(t, clierr.Failed, clierr.Code(err))
		require.ErrorContains(t, err, "agent/widgets: objects in workspaces may still have the finalizer syncagent.kcp.io/cleanup")
		require.Contains(t, clierr.Hint(err), "run the command again")

		w.secrets(endpoint, "first")
		patch := "PATCH " + endpoint + "/clusters/c1/api/v1/namespaces/default/secrets/first"
		w.Runtime.Kcp.Always(patch, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "v1", "kind": "Secret"}})
		w.MustRun(t)
		require.Len(t, w.Runtime.Kcp.Requests(patch), 1)
	})
}
