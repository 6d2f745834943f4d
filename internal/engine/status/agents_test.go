package status_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/engine/status"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const (
	exportPath  = "/services/apiexport/abc/widgets"
	watchedPath = "GET " + exportPath + "/clusters/*/apis/apis.kcp.io/v1alpha1/apibindings"
	leaseName   = "syncagent.demo-widgets"
)

// withAgent is a setup with an agent that publishes two kinds, on two shards.
func withAgent(paused string) string {
	return `spec:
  external: {hostname: kcp.example.com}
  shards: [{name: alpha}]
  agents:
  - name: widgets
    workspace: root:widgets
    paused: ` + paused + `
    publishedResources:
    - {name: gadgets, spec: {resource: {apiGroup: example.com, kind: Gadget, versions: [v1]}, naming: {name: "{{ .ClusterName }}"}}}
    - {name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget, versions: [v1]}, naming: {name: "{{ .ClusterName }}"}}}
`
}

// agentWorld is a setup with an agent that is well, until a test breaks something.
type agentWorld struct {
	t   *testing.T
	top *topology.Topology
	rt  *fakeruntime.Runtime
}

func inAgentWorld(t *testing.T, test func(w *agentWorld)) {
	synctest.Test(t, func(t *testing.T) {
		top := topologytest.Build(t, withAgent("true"))
		w := &agentWorld{t, top, fakeruntime.New(t, top)}
		w.rt.Kcp.ServeObjects()
		w.rt.Kcp.PutIn("root/workspaces/widgets", object("tenancy.kcp.io/v1alpha1", "Workspace", "status", map[string]any{"phase": "Ready"}))
		_, err := (&deploy.Up{Topology: top, Runtime: w.rt, Observe: func(run.Event) {}, Now: time.Now, Network: fakeruntime.Network{}}).Run(t.Context())
		require.NoError(t, err)
		for _, name := range []string{"gadgets", "widgets"} {
			w.publish(name, "v1."+name)
		}
		w.export("v1.gadgets", "v1.widgets")
		w.endpoints(top.Shards()[0].VirtualWorkspaceURL, top.Shards()[1].VirtualWorkspaceURL)
		w.lease(time.Now())
		w.rt.Kcp.Always(watchedPath, fakekcp.Answer{Code: http.StatusOK, Body: "{}"})
		w.top = topologytest.Build(t, withAgent("false"))
		test(w)
	})
}

func object(apiVersion, kind, field string, value map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, field: value}}
}

// publish sets the schema that the agent has made of a PublishedResource.
func (w *agentWorld) publish(name, schema string) {
	w.rt.Edit("PublishedResource/"+name, func(o *unstructured.Unstructured) {
		o.Object["status"] = map[string]any{"resourceSchemaName": schema}
	})
}

// export stores the APIExport with some schemas.
func (w *agentWorld) export(schemas ...string) {
	all := []any{}
	for _, s := range schemas {
		all = append(all, map[string]any{"schema": s})
	}
	export := object("apis.kcp.io/v1alpha2", "APIExport", "spec", map[string]any{"resources": all})
	export.SetName("widgets")
	w.rt.Kcp.PutIn("root:widgets/apiexports/widgets", export)
}

// endpoints stores the servers that serve the APIExport.
func (w *agentWorld) endpoints(servers ...string) {
	all := []any{}
	for _, url := range servers {
		all = append(all, map[string]any{"url": url + exportPath})
	}
	w.rt.Kcp.PutIn("root:widgets/apiexportendpointslices/widgets",
		object("apis.kcp.io/v1alpha1", "APIExportEndpointSlice", "status", map[string]any{"endpoints": all}))
}

func (w *agentWorld) lease(renewed time.Time) {
	lease := object("coordination.k8s.io/v1", "Lease", "spec", map[string]any{
		"holderIdentity": "pod-1_abc", "renewTime": renewed.UTC().Format(time.RFC3339Nano),
	})
	lease.SetName(leaseName)
	home := w.top.Home
	w.rt.Made = []plan.Item{{Live: lease, Ref: plan.Ref{
		Cluster: home.Name, Namespace: home.Namespace, Name: leaseName, GroupVersionKind: lease.GroupVersionKind(),
	}}}
}

// failed writes to the log of the agent that it could not watch a shard.
func (w *agentWorld) failed(shard *topology.Component) {
	w.rt.Log("agent/widgets", fmt.Sprintf(`{"level":"error","msg":"failed to watch endpoint","url":%q,"error":"no route to host"}`+"\n",
		shard.VirtualWorkspaceURL+exportPath))
}

// agent returns the state of the agent, and whether all of the setup is ready.
func (w *agentWorld) agent(rt status.Runtime) (*status.Component, bool) {
	s, err := status.Collect(w.t.Context(), w.top, rt, time.Now(), status.Options{})
	require.NoError(w.t, err)
	for i := range s.Components {
		if s.Components[i].ID == "agent/widgets" {
			return &s.Components[i], s.Ready
		}
	}
	w.t.Fatal("the status has no agent")
	return nil, false
}

func share(n, of int) *status.Share { return &status.Share{Count: n, Of: of} }

func TestAgents(t *testing.T) {
	well := status.Agent{Leader: "pod-1_abc", Published: share(2, 2), Answering: share(2, 2)}
	with := func(change func(*status.Agent)) *status.Agent {
		a := well
		change(&a)
		return &a
	}
	for name, tc := range map[string]struct {
		spoil func(w *agentWorld)
		want  *status.Agent
		// well means that the agent is, ready that the setup is.
		well, ready bool
	}{
		"well": {func(*agentWorld) {}, &well, true, true},
		"its pods are not ready": {
			func(w *agentWorld) {
				w.rt.States("agent/widgets", ready.State{Replicas: 1, Reason: "ImagePullBackOff"})
			},
			nil, false, false,
		},
		"it does not publish a kind": {
			func(w *agentWorld) { w.publish("gadgets", "") },
			with(func(a *status.Agent) {
				a.Published, a.Problem = share(1, 2), "PublishedResource gadgets: the agent has made no APIResourceSchema yet"
			}), false, false,
		},
		"the APIExport lacks a schema": {
			func(w *agentWorld) { w.export("v1.gadgets") },
			with(func(a *status.Agent) {
				a.Published, a.Problem = share(1, 2), "PublishedResource widgets: APIExport widgets does not have its schema v1.widgets yet"
			}), false, false,
		},
		"no replica has the lease": {
			func(w *agentWorld) { w.rt.Made = nil },
			with(func(a *status.Agent) { a.Leader, a.Problem = "", "starting, has no Lease "+leaseName+" yet" }), false, false,
		},
		"the lease is not renewed": {
			func(w *agentWorld) { w.lease(time.Now().Add(-time.Minute)) },
			with(func(a *status.Agent) {
				a.Leader, a.Problem = "", "pod-1_abc holds Lease "+leaseName+", but has not renewed it for 1m0s"
			}), false, false,
		},
		"no workspace binds it": {
			func(w *agentWorld) { w.endpoints() }, with(func(a *status.Agent) { a.Answering = share(0, 0) }), true, true,
		},
		"a shard refuses it": {
			func(w *agentWorld) {
				w.rt.Kcp.Always("shard/alpha "+watchedPath, fakekcp.Answer{Code: http.StatusForbidden, Body: "no\n"})
			},
			with(func(a *status.Agent) {
				a.Answering = share(1, 2)
				a.Problem = "https://demo-shard-alpha.kcp.svc.cluster.local:6443" + exportPath +
					" answers the agent with HTTP status 403: no"
			}), false, false,
		},
		"a shard does not serve it yet": {
			func(w *agentWorld) {
				w.rt.Kcp.Script("shard/alpha "+watchedPath, fakekcp.Answer{Code: http.StatusNotFound, Body: "not found"})
			}, &well, true, true,
		},
		"a shard is silent": {
			func(w *agentWorld) { w.rt.Kcp.Always("shard/alpha "+watchedPath, fakekcp.Hang()) },
			with(func(a *status.Agent) {
				a.Answering, a.Problem = share(1, 2), "shard/alpha: no answer within 5s"
			}), false, false,
		},
		"it has failed to watch a shard": {
			func(w *agentWorld) { w.failed(w.top.Shards()[1]) },
			with(func(a *status.Agent) {
				a.Problem = "does not watch shard/alpha (no route to host); kcpctl up restarts it"
			}), false, false,
		},
		"it has failed to watch a shard that is not ready": {
			func(w *agentWorld) {
				w.failed(w.top.Shards()[1])
				w.rt.States("shard/alpha", ready.State{Replicas: 1, Reason: "CrashLoopBackOff"})
			},
			with(func(a *status.Agent) { a.Answering = share(1, 2) }), true, false,
		},
		"a shard is not ready": {
			func(w *agentWorld) { w.rt.States("shard/alpha", ready.State{Replicas: 1, Reason: "CrashLoopBackOff"}) },
			with(func(a *status.Agent) { a.Answering = share(1, 2) }), true, false,
		},
		"a URL is of no shard": {
			func(w *agentWorld) { w.endpoints(w.top.Root().VirtualWorkspaceURL, "https://gone.example.com") },
			with(func(a *status.Agent) {
				a.Answering, a.Problem = share(1, 2), "https://gone.example.com"+exportPath+" belongs to no shard of the setup"
			}), false, false,
		},
		"no front-proxy is ready": {
			func(w *agentWorld) {
				w.rt.States("front-proxy/main", ready.State{Replicas: 1, Reason: "CrashLoopBackOff"})
			},
			&status.Agent{Leader: "pod-1_abc", Unknown: "no front-proxy is ready that accepts client certificates"}, true, false,
		},
		"the front-proxy is silent": {
			func(w *agentWorld) {
				for _, resource := range []string{"apiexports", "apiexportendpointslices"} {
					w.rt.Kcp.Always("front-proxy/main get "+resource, fakekcp.Hang())
				}
			},
			&status.Agent{
				Leader: "pod-1_abc", Problem: "read what it has published: no answer within 5s",
			}, false, false,
		},
		"the PKI is gone": {
			func(w *agentWorld) { w.rt.OtherRun(&pki.State{}) },
			&status.Agent{Leader: "pod-1_abc", Unknown: "the PKI store is empty, so kcp cannot be asked"}, true, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inAgentWorld(t, func(w *agentWorld) {
				tc.spoil(w)
				start := time.Now()
				c, setupReady := w.agent(w.rt)
				require.Equal(t, tc.want, c.Agent)
				require.Equal(t, tc.well, c.Well())
				require.Equal(t, tc.ready, setupReady)
				require.LessOrEqual(t, time.Since(start), 10*time.Second, "a status does not wait long for a server that is silent")
				for _, r := range w.rt.Kcp.Requests(watchedPath) {
					require.Equal(t, "kcpctl:agent:demo:widgets", r.User)
				}
			})
		})
	}
}

// Without agents, and for those that are paused, nothing is asked.
func TestNothingIsAskedWithoutAgents(t *testing.T) {
	inAgentWorld(t, func(w *agentWorld) {
		w.top = topologytest.Build(w.t, withAgent("true"))
		w.rt.Kcp.Register(kcp.Shard{Name: "alpha"})
		before := len(w.rt.Kcp.Requests("get apiexports"))
		c, _ := w.agent(w.rt)
		require.Nil(w.t, c.Agent)
		require.Len(w.t, w.rt.Kcp.Requests("get apiexports"), before)
		require.Empty(w.t, w.rt.Kcp.Requests(watchedPath))
	})
}

// slow is a runtime whose clusters have a clock that is an hour slow.
type slow struct {
	*fakeruntime.Runtime
}

func (s slow) Read(
	ctx context.Context, c *topology.Component, gvk schema.GroupVersionKind, namespace, name string,
) (*unstructured.Unstructured, error) {
	o, err := s.Runtime.Read(ctx, c, gvk, namespace, name)
	if o != nil && o.GetKind() == "Lease" {
		o = o.DeepCopy()
		o.Object["spec"].(map[string]any)["renewTime"] = time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano)
	}
	return o, err
}

// A lease that is renewed shows that the agent works, whatever time it has.
func TestAnAgentWithAnotherClock(t *testing.T) {
	inAgentWorld(t, func(w *agentWorld) {
		c, setupReady := w.agent(slow{w.rt})
		require.Equal(t, "pod-1_abc", c.Agent.Leader)
		require.Empty(t, c.Agent.Problem)
		require.True(t, setupReady)
	})
}
