package workspace

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const agentOnThisMachine = `spec:
  clusters: [{name: services, context: services, namespace: agents}]
  agents:
  - name: widgets
    workspace: root:widgets
    publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget, versions: [v1]}}}]
`

// issuer is a cluster that issues kubeconfigs.
type issuer struct{ fakeCluster }

func (f *issuer) Issue(ctx context.Context, namespace, account string, validity time.Duration) ([]byte, error) {
	token, err := f.fakeCluster.Issue(ctx, namespace, account, validity)
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, users: [{name: cluster, user: {token: %q}}]}`, token), err
}

func (f *issuer) Fits(_ context.Context, kubeconfig []byte, _, _ string) bool {
	c, err := clientcmd.Load(kubeconfig)
	return err == nil && c.AuthInfos["cluster"] != nil && c.AuthInfos["cluster"].Token == f.fits
}

// newService returns the runtime of an agent on this machine, the cluster whose APIs it publishes, and the objects of
// the agent that are not in kcp.
func newService(t *testing.T) (*Runtime, *issuer, []render.Object) {
	t.Helper()
	top := topologytest.BuildLocal(t, agentOnThisMachine)
	state := pkitest.Issue(t, top, time.Now())
	all, err := render.Component(top, state, top.Component("agent/widgets"))
	require.NoError(t, err)
	all = slices.DeleteFunc(all, func(o render.Object) bool { return o.Workspace != "" && !topology.IsKubernetes(o.Workspace) })
	f := &issuer{fakeCluster: fakeCluster{objects: map[string]*unstructured.Unstructured{}}}
	rt := Wrap(fakeruntime.New(t, top), top, func(c topology.Cluster, _ string) (Physical, error) {
		require.Equal(t, "services agents", c.Context+" "+c.Namespace)
		return f, nil
	}, time.Now, func(note string) { t.Log(note) })
	rt.use(state)
	return rt, f, all
}

// entry returns a key of the Secret with the credential, as it was applied.
func entry(t *testing.T, rt *Runtime, key string) string {
	t.Helper()
	all, err := rt.Runtime.Objects(t.Context())
	require.NoError(t, err)
	for _, it := range all {
		if it.Name == "demo-agent-widgets-service-cluster" {
			text, _, _ := unstructured.NestedString(it.Live.Object, "data", key)
			raw, err := base64.StdEncoding.DecodeString(text)
			require.NoError(t, err)
			return string(raw)
		}
	}
	return ""
}

func TestAgentOnThisMachineForACluster(t *testing.T) {
	rt, f, all := newService(t)
	ctx := t.Context()
	mustPlan := func(all []render.Object) *plan.Plan {
		t.Helper()
		p, err := rt.Plan(ctx, all, run.PlanOptions{})
		require.NoError(t, err)
		return p
	}
	services := rt.Facts().Services
	require.Len(t, services, 1)
	require.NoError(t, services[0].Err)
	require.False(t, services[0].Registered)
	p := mustPlan(all)
	require.Zero(t, f.issued, "a plan issues nothing")
	require.NoError(t, rt.Apply(ctx, p.Items, run.PlanOptions{}))
	require.Equal(t, "agents/demo-agent-widgets 1", entry(t, rt, "token"))
	config, err := clientcmd.Load([]byte(entry(t, rt, "kubeconfig")))
	require.NoError(t, err)
	require.Equal(t, "service.token", config.AuthInfos["cluster"].TokenFile, "the agent reads it again")
	require.Empty(t, f.objects["Deployment/demo-agent-widgets"], "the agent runs here")
	require.NotEmpty(t, f.objects["PublishedResource/widgets"])

	p = mustPlan(all)
	require.Equal(t, len(p.Items), p.Count(plan.Unchanged), actions(p))
	f.fits = ""
	p = mustPlan(all)
	require.Equal(t, 1, p.Count(plan.Change), "the token is due: %v", actions(p))
	require.NoError(t, rt.Apply(ctx, p.Items, run.PlanOptions{}))
	require.Equal(t, "agents/demo-agent-widgets 2", entry(t, rt, "token"))

	widgets := topology.ID("agent/widgets")
	lease, err := rt.Read(ctx, rt.topology.Component(widgets), schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, "agents", "demo-agent-widgets")
	require.NoError(t, err)
	require.NotNil(t, lease)
	found, err := rt.Find(ctx, plan.Ref{Workspace: "service-cluster/services", Namespace: "agents", GroupVersionKind: lease.GroupVersionKind()}, "")
	require.NoError(t, err)
	require.Len(t, found, 1)

	rec := &record.Record{Installation: rt.state.Installation.ID}
	rec.SetPlaced(p, false)
	require.NoError(t, rt.Begin(ctx, &plan.Plan{}, rec))
	items, err := rt.Objects(ctx)
	require.NoError(t, err)
	var removed []string
	for _, it := range items {
		if it.Workspace != "" {
			removed = append(removed, it.Kind)
		}
	}
	require.ElementsMatch(t, []string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "PublishedResource"}, removed,
		"neither CustomResourceDefinitions nor the namespace")
	require.NoError(t, rt.Purge(ctx))
	require.Contains(t, f.objects, "Namespace/agents", "it is not empty")
	for name, o := range f.objects {
		if o.GetNamespace() == "agents" {
			delete(f.objects, name)
		}
	}
	require.NoError(t, rt.Purge(ctx))
	require.NotContains(t, f.objects, "Namespace/agents")
}

func TestServiceClusterMustStayUntilItsAgentsAreRemoved(t *testing.T) {
	rt, f, all := newService(t)
	p, err := rt.Plan(t.Context(), all, run.PlanOptions{})
	require.NoError(t, err)
	rec := &record.Record{Installation: rt.state.Installation.ID}
	rec.SetPlaced(p, false)
	require.NoError(t, rt.Begin(t.Context(), &plan.Plan{}, rec))

	f.broken = errors.New("connection refused")
	p, err = rt.Plan(t.Context(), all, run.PlanOptions{})
	require.NoError(t, err)
	require.NotZero(t, p.Count(plan.Unknown), "it is compared when it answers")

	_, err = rt.Plan(t.Context(), nil, run.PlanOptions{})
	require.ErrorContains(t, err, "connection refused", "an agent is removed as a whole, or not at all")
	require.Contains(t, clierr.Hint(err), "if the cluster is lost for good, remove it from spec.clusters, too, and run kcpctl up --orphan agent/widgets")

	rt.topology.Setup.Spec.Clusters[0].Name = "home"
	_, err = rt.Plan(t.Context(), nil, run.PlanOptions{})
	require.ErrorContains(t, err, "the cluster services: spec.clusters no longer has it")
	require.Contains(t, clierr.Hint(err), "add the cluster to the setup file again")

	p, err = rt.Plan(t.Context(), nil, run.PlanOptions{Orphan: []topology.ID{"agent/widgets"}})
	require.NoError(t, err, "the user says that it is lost")
	for _, it := range p.Items {
		require.False(t, topology.IsKubernetes(it.Workspace), it.Ref)
	}
}

func TestServiceClusterThatIsGone(t *testing.T) {
	refused := clierr.New(clierr.Failed, "start it", "the API server does not answer: %w", errors.New("connection refused"))
	rt, f, all := newService(t)
	f.broken = refused
	_, err := rt.Plan(t.Context(), all, run.PlanOptions{})
	require.ErrorIs(t, err, refused, "nothing is written before a new cluster answers")
	f.broken = apierrors.NewForbidden(schema.GroupResource{Resource: "roles"}, "demo", errors.New("no"))
	_, err = rt.Plan(t.Context(), all, run.PlanOptions{})
	require.Contains(t, clierr.Hint(err), "ask an administrator of the cluster")

	f.broken = nil
	p, err := rt.Plan(t.Context(), all, run.PlanOptions{})
	require.NoError(t, err)
	require.NoError(t, rt.Apply(t.Context(), p.Items, run.PlanOptions{}))
	rec := &record.Record{Installation: rt.state.Installation.ID}
	rec.SetPlaced(p, false)
	require.NoError(t, rt.Begin(t.Context(), &plan.Plan{}, rec))
	f.broken = refused
	p, err = rt.Plan(t.Context(), all, run.PlanOptions{})
	require.NoError(t, err, "the other components do not need it")
	require.Contains(t, p.Summary(), "unknown (on service-cluster/services)")

	var notes []string
	rt.notify = func(note string) { notes = append(notes, note) }
	open := rt.open
	for name, gone := range map[string]func(topology.Cluster, string) (Physical, error){
		"it does not answer": open,
		"its context is gone": func(topology.Cluster, string) (Physical, error) {
			return nil, clierr.New(clierr.Failed, "correct the context", "context services does not exist")
		},
	} {
		rt.open, notes = gone, nil
		items, err := rt.Objects(t.Context())
		require.NoError(t, err, name)
		known := 0
		for _, it := range items {
			if it.Workspace != "" && it.Live != nil {
				known++
			}
		}
		require.Zero(t, known, name)
		require.NoError(t, rt.Purge(t.Context()), name)
		require.Len(t, notes, 1, name)
		require.Contains(t, notes[0], "Namespace/agents in service-cluster/services stays: ", name)
	}
}
