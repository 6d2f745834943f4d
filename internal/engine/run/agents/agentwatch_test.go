package agents_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const (
	oneAgent = runtest.Minimal + `spec:
  external: {hostname: kcp.example.com}
  agents:
  - name: widgets
    workspace: root:widgets
    paused: true
    publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget}, naming: {name: "{{ .ClusterName }}"}}}]
`
	schemaOfWidgets = "v1234.widgets.example.com"
)

// inRunningAgent runs a test with an agent that runs, and has published its resource.
func inRunningAgent(t *testing.T, test func(t *testing.T, w *world)) {
	inWorld(t, oneAgent, func(t *testing.T, w *world) {
		object := func(apiVersion, kind string, fields map[string]any) *unstructured.Unstructured {
			fields["apiVersion"], fields["kind"] = apiVersion, kind
			return &unstructured.Unstructured{Object: fields}
		}
		w.Runtime.Kcp.ServeObjects()
		w.Runtime.Kcp.PutIn("root/workspaces/widgets", object("tenancy.kcp.io/v1alpha1", "Workspace", map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{"core.kcp.io/shard": "root"}}, "status": map[string]any{"phase": "Ready"},
		}))
		w.MustRun(t)
		w.Runtime.Edit("PublishedResource/widgets", func(o *unstructured.Unstructured) {
			o.Object["status"] = map[string]any{"resourceSchemaName": schemaOfWidgets}
		})
		w.Runtime.Kcp.PutIn("root:widgets/apiexports/widgets", object("apis.kcp.io/v1alpha2", "APIExport", map[string]any{"spec": map[string]any{
			"resources":        []any{map[string]any{"group": "example.com", "name": "widgets", "schema": schemaOfWidgets}},
			"permissionClaims": []any{map[string]any{"resource": "events"}},
		}}))
		w.Runtime.Kcp.PutIn("root:widgets/apibindings/widgets", object("apis.kcp.io/v1alpha2", "APIBinding", map[string]any{
			"status": map[string]any{"phase": "Bound", "boundResources": []any{map[string]any{"schema": map[string]any{"name": schemaOfWidgets}}}},
		}))
		w.Runtime.Kcp.PutIn("root:widgets/apiexportendpointslices/widgets", object("apis.kcp.io/v1alpha1", "APIExportEndpointSlice", map[string]any{
			"status": map[string]any{"endpoints": []any{map[string]any{"url": w.Topology.Root().VirtualWorkspaceURL + endpoint}}},
		}))
		w.Runtime.Kcp.Always("GET "+endpoint+"/clusters/*/apis/apis.kcp.io/v1alpha1/apibindings", list())
		made(w, "Lease", "syncagent.demo-widgets", "")
		w.leads("pod-1")
		top := topologytest.Build(t, strings.Replace(oneAgent, "paused: true", "paused: false", 1))
		w.Runtime.Use(top)
		w.Topology, w.Up.Topology = top, top
		w.MustRun(t)
		test(t, w)
	})
}

// leads lets a process hold the Lease of the agent.
func (w *world) leads(holder string) {
	lease := w.Runtime.Made[0]
	lease.Live = lease.Live.DeepCopy()
	lease.Live.Object["spec"] = map[string]any{"holderIdentity": holder, "renewTime": time.Now().UTC().Format(time.RFC3339Nano)}
	w.Runtime.Make(lease)
}

func TestAgentThatDoesNotWatchAShardIsRestarted(t *testing.T) {
	inRunningAgent(t, func(t *testing.T, w *world) {
		require.True(t, w.MustRun(t).Plan.Empty())
		require.Empty(t, w.Runtime.Calls())

		w.Runtime.Log(agentWidgets, fmt.Sprintf(
			`{"level":"error","msg":"failed to watch endpoint","url":"%s","error":"no route to host"}`+"\n", w.Topology.Root().VirtualWorkspaceURL+endpoint))
		w.Runtime.On("Replace agent/widgets", func() error {
			w.Runtime.Log(agentWidgets, "")
			go func() {
				time.Sleep(15 * time.Second) // the Lease of the previous process has ended
				w.leads("pod-2")
			}()
			return nil
		})
		began := time.Now()
		w.MustRun(t)
		require.Contains(t, w.Runtime.Calls(), "Replace agent/widgets")
		require.Equal(t, []string{
			"pending", "running does not watch root-shard (no route to host); it restarts",
			"running the previous process still holds the Lease", "done ready 1/1, unchanged",
		}, w.Of("agent/widgets"))
		require.GreaterOrEqual(t, time.Since(began), 15*time.Second)
		require.True(t, w.MustRun(t).Plan.Empty(), "once")
	})
}

// A workspace that binds the APIExport of an agent can be the first consumer on its shard. Before v0.32, kcp writes
// only a hash of the shard's name to it.
func TestUpWaitsForTheShardOfAWorkspaceThatBindsAnAgent(t *testing.T) {
	for annotation, value := range map[string]string{"core.kcp.io/shard": "alpha", "internal.tenancy.kcp.io/shard": "221wvpxe"} {
		t.Run(annotation, func(t *testing.T) { waitsForTheShard(t, map[string]any{annotation: value}) })
	}
}

func waitsForTheShard(t *testing.T, ofTeam map[string]any) {
	inRunningAgent(t, func(t *testing.T, w *world) {
		text := strings.Replace(oneAgent, "paused: true", "paused: false", 1) +
			"  shards: [{name: alpha}]\n  workspaces: [{name: team, bindings: [{export: \"root:widgets:widgets\"}]}]\n"
		top := topologytest.Build(t, text)
		w.Runtime.Use(top)
		w.Topology, w.Up.Topology = top, top
		w.Runtime.Kcp.PutIn("root/workspaces/team", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
			"metadata": map[string]any{"annotations": ofTeam}, "status": map[string]any{"phase": "Ready"},
		}})
		alpha := top.Shards()[1].VirtualWorkspaceURL + endpoint
		slice := w.Runtime.Kcp.In("root:widgets/apiexportendpointslices/widgets")
		slice.Object["status"] = map[string]any{"endpoints": []any{
			map[string]any{"url": top.Root().VirtualWorkspaceURL + endpoint}, map[string]any{"url": alpha},
		}}
		go func() {
			time.Sleep(5 * time.Second) // the agent tries the endpoint as soon as it is there, and not again
			w.Runtime.Kcp.PutIn("root:widgets/apiexportendpointslices/widgets", slice)
		}()
		w.OnEach = func(e run.Event) {
			if e.Name == "workspace/root:team" && strings.Contains(e.Message, "has no URL") {
				w.Runtime.Log(agentWidgets, fmt.Sprintf(`{"level":"error","msg":"failed to watch endpoint","url":%q,"error":"HTTP 403"}`+"\n", alpha))
			}
		}
		w.Runtime.On("Replace agent/widgets", func() error {
			w.Runtime.Log(agentWidgets, "")
			w.leads("pod-2")
			return nil
		})
		began := time.Now()
		w.MustRun(t)
		require.GreaterOrEqual(t, time.Since(began), 5*time.Second)
		got := w.Of("workspace/root:team")
		require.Subset(t, got, []string{
			"running APIExportEndpointSlice widgets in root:widgets has no URL of shard/alpha yet",
			"running agent/widgets does not watch shard/alpha (HTTP 403); it restarts",
		})
		require.Contains(t, got[len(got)-1], "done")
	})
}

func TestAgentIsNotRestartedForAnotherReason(t *testing.T) {
	inRunningAgent(t, func(t *testing.T, w *world) {
		for name, log := range map[string]string{
			"another error": `{"level":"error","msg":"Reconciler error","error":"failed to watch"}` + "\n",
			"a shard that was removed": `{"level":"error","msg":"failed to watch endpoint","url":"https://removed` + endpoint +
				`","error":"no such host"}` + "\n",
		} {
			w.Runtime.Log(agentWidgets, log)
			require.True(t, w.MustRun(t).Plan.Empty(), name)
		}
	})
}

// A dry run shows what up would do, and restarts nothing.
func TestDryRunNotesAnAgentThatDoesNotWatchAShard(t *testing.T) {
	inRunningAgent(t, func(t *testing.T, w *world) {
		w.Runtime.Log(agentWidgets, fmt.Sprintf(
			`{"level":"error","msg":"failed to watch endpoint","url":"%s","error":"no route to host"}`+"\n", w.Topology.Root().VirtualWorkspaceURL+endpoint))
		w.Up.Options = deploy.UpOptions{DryRun: true}
		w.MustRun(t)
		require.Contains(t, w.Of(""), "agent/widgets does not watch root-shard (no route to host); up restarts it")
		require.Empty(t, w.Runtime.Calls())
	})
}
