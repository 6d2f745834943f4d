package cmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/cmd/ui"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/compute"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// fakeCompute keeps the objects of workspaces, by workspace, namespace, kind and name: root:team default
// Deployment/web.
type fakeCompute struct {
	objects   map[string]*unstructured.Unstructured
	resources map[string][]metav1.APIResource // by workspace and version: root:team apps/v1
	// changed is called after each change of an object.
	changed func(o *unstructured.Unstructured)
	// applied is called with each object that is applied.
	applied func(o *unstructured.Unstructured)
	// read is called before an object is read.
	read func()
}

func keyOf(p plan.Ref) string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s %s/%s", p.Workspace, p.Namespace, p.Kind, p.Name)), " ")
}

func (f *fakeCompute) Object(_ context.Context, p plan.Ref) (*unstructured.Unstructured, error) {
	if f.read != nil {
		f.read()
	}
	return f.objects[keyOf(p)].DeepCopy(), nil
}

func (f *fakeCompute) Objects(_ context.Context, p plan.Ref, _ string) (out []unstructured.Unstructured, _ error) {
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		if strings.HasPrefix(key, keyOf(p)) {
			out = append(out, *f.objects[key].DeepCopy())
		}
	}
	slices.Reverse(out)
	return out, nil
}

func (f *fakeCompute) ApplyObject(_ context.Context, p plan.Ref, o *unstructured.Unstructured, _, _ bool) (*unstructured.Unstructured, error) {
	if f.applied != nil {
		f.applied(o)
	}
	return f.change(p, o.Object)
}

func (f *fakeCompute) PatchObject(_ context.Context, p plan.Ref, patch map[string]any) (*unstructured.Unstructured, error) {
	return f.change(p, patch)
}

func (f *fakeCompute) change(p plan.Ref, with map[string]any) (*unstructured.Unstructured, error) {
	o := f.objects[keyOf(p)]
	if o == nil {
		return nil, fmt.Errorf("%s not found", keyOf(p))
	}
	mergeInto(o.Object, with)
	if f.changed != nil {
		f.changed(o)
	}
	return o.DeepCopy(), nil
}

// mergeInto merges a JSON merge patch.
func mergeInto(into, patch map[string]any) {
	for key, value := range patch {
		below, isMap := value.(map[string]any)
		switch have, ok := into[key].(map[string]any); {
		case value == nil:
			delete(into, key)
		case isMap && ok:
			mergeInto(have, below)
		case isMap:
			next := map[string]any{}
			mergeInto(next, below)
			into[key] = next
		default:
			into[key] = value
		}
	}
}

func (f *fakeCompute) Resources(_ context.Context, workspace string, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	if all, ok := f.resources[workspace+" "+gv.String()]; ok {
		return all, nil
	}
	return nil, fmt.Errorf("%s: %w", gv, kcp.ErrNotServed)
}

// newCompute is a kcp with two clusters and a workspace.
func newCompute(t *testing.T) (*computeSession, *fakeCompute) {
	t.Helper()
	f := &fakeCompute{objects: map[string]*unstructured.Unstructured{}, resources: map[string][]metav1.APIResource{}}
	f.put(t, "root:compute", `
apiVersion: workloads.kcp.dev/v1alpha1
kind: Cluster
metadata: {name: c1, creationTimestamp: "2026-11-20T10:00:00Z", labels: {region: eu, kcpctl.dev/setup: demo}}
spec: {syncMode: Push}
status:
  version: v1.36.3
  leaves: 12
  syncer: {mode: Push, holder: controller-0, version: v1.0.0}
  conditions:
  - {type: Ready, status: "True", reason: Ready, message: "", lastTransitionTime: null}
  - {type: Schedulable, status: "True", reason: Ready, message: "", lastTransitionTime: null}
  apis:
  - {group: apps, resource: deployments, version: v1, state: Published}
  - {group: "", resource: services, version: v1, state: Published}`)
	f.put(t, "root:compute", `
apiVersion: workloads.kcp.dev/v1alpha1
kind: Cluster
metadata: {name: c2, creationTimestamp: "2026-11-20T11:30:00Z"}
spec: {syncMode: None, unschedulable: true}
status:
  conditions:
  - {type: Ready, status: "False", reason: HeartbeatMissed, message: no heartbeat for 2m0s, lastTransitionTime: null}
  - {type: Schedulable, status: "False", reason: Cordoned, message: spec.unschedulable is set, lastTransitionTime: null}
  - {type: Evicted, status: "False", reason: FullDisruption, message: no cluster is ready, lastTransitionTime: null}
  apis:
  - {group: apps, resource: deployments, version: v1, state: Incompatible, message: "spec.paused: the field is missing"}
  - {group: "", resource: services, state: Ignored}`)
	f.resources["root:team apps/v1"] = []metav1.APIResource{
		{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true, ShortNames: []string{"deploy"}},
	}
	f.resources["root:team v1"] = []metav1.APIResource{
		{Name: "configmaps", SingularName: "configmap", Kind: "ConfigMap", Namespaced: true, ShortNames: []string{"cm"}},
		{Name: "events", Kind: "Event", Namespaced: true},
		{Name: "secrets", Kind: "Secret", Namespaced: true},
		{Name: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true},
		{Name: "services", SingularName: "service", Kind: "Service", Namespaced: true},
	}
	f.resources["root:other v1"] = f.resources["root:team v1"][:4]
	return &computeSession{Workspace: &compute.Workspace{
		Client: f, Path: "root:compute", Topology: topologytest.Build(t, twoClusters), Now: at,
	}}, f
}

func (f *fakeCompute) put(t *testing.T, workspace, text string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
	f.objects[keyOf(plan.Ref{Workspace: workspace, Namespace: o.GetNamespace(), GroupVersionKind: o.GroupVersionKind(), Name: o.GetName()})] = o
}

// at is the time of the tests.
func at() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

func fakeEnv() (*Env, fmt.Stringer, fmt.Stringer) {
	streams, out, errs := ui.Fake("", 0, 0)
	return &Env{Streams: streams, Now: at, Getenv: func(string) string { return "" }, Program: "kcpctl"}, out, errs
}

func TestClusterList(t *testing.T) {
	c, f := newCompute(t)
	list := func(output string, inFile ...string) (string, string) {
		t.Helper()
		env, out, errs := fakeEnv()
		o := &clusterListOptions{env: env, output: output}
		require.NoError(t, o.list(t.Context(), c, inFile))
		return out.String(), errs.String()
	}
	out, _ := list("", "c1", "c3")
	require.Equal(t, `NAME   READY     REASON            SCHEDULABLE        MODE        VERSION     APIS        LEAVES      AGE
c1     True      <none>            True               Push        v1.36.3     2/2         12          120m
c2     False     HeartbeatMissed   False (Cordoned)   None        <unknown>   0/2         <unknown>   30m
c3     Unknown   NotRegistered     <unknown>          <unknown>   <unknown>   <unknown>   <unknown>   <unknown>
`, out)
	out, _ = list("wide")
	require.Regexp(t, `LABELS +SYNCER +EVICTED +MESSAGE\n`, out)
	require.Regexp(t, `region=eu +controller-0 v1.0.0 +<none> +<none>\n`, out)
	require.Regexp(t, `<none> +<unknown> +False \(FullDisruption\) +no heartbeat for 2m0s\n`, out)
	out, _ = list("jsonpath={.kind} {.items[*].metadata.name} {.items[0].status.leaves}")
	require.Equal(t, "ClusterList c1 c2 12", strings.TrimSpace(out))
	f.objects = nil
	out, errs := list("")
	require.Empty(t, out)
	require.Equal(t, "No clusters found in kcp \"demo\".\n", errs)
	out, _ = list("json")
	require.Contains(t, out, `"items": []`)
}

func TestWorkloadsAPIs(t *testing.T) {
	c, f := newCompute(t)
	env, out, _ := fakeEnv()
	o := &workloadsAPIsOptions{env: env}
	require.NoError(t, o.run(t.Context(), c))
	require.Equal(t, `API                CLUSTER   STATE          VERSION   MESSAGE
deployments.apps   c1        Published      v1        <none>
                   c2        Incompatible   v1        spec.paused: the field is missing
services           c1        Published      v1        <none>
                   c2        Ignored        <none>    <none>
`, out.String())
	env, out, _ = fakeEnv()
	o = &workloadsAPIsOptions{env: env, output: "jsonpath={.items[1].cluster} {.items[1].resource} {.items[1].state}"}
	require.NoError(t, o.run(t.Context(), c))
	require.Equal(t, "c2 deployments Incompatible", strings.TrimSpace(out.String()))

	// What a narrower schema costs is listed completely, with the command that accepts exactly this.
	apis, _, _ := unstructured.NestedSlice(f.objects["root:compute Cluster/c2"].Object, "status", "apis")
	apis[0].(map[string]any)["accept"] = map[string]any{"value": "deployments.apps:1a2b3c4d", "lost": []any{"spec.paused: the field is missing", "spec.x: the field is missing"}}
	require.NoError(t, unstructured.SetNestedSlice(f.objects["root:compute Cluster/c2"].Object, apis, "status", "apis"))
	env, _, errs := fakeEnv()
	o = &workloadsAPIsOptions{env: env}
	require.NoError(t, o.run(t.Context(), c))
	require.Equal(t, `
c2 can serve deployments.apps with a narrower schema. At the next write of an object in any workspace, kcp drops
what the schema lacks, or refuses the write. This cannot be undone:
  spec.paused: the field is missing
  spec.x: the field is missing
To accept exactly this, run in workspace root:compute:
  kubectl annotate clusters.workloads.kcp.dev c2 workloads.kcp.dev/accept-schema=deployments.apps:1a2b3c4d
`, errs.String())
}

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: default
  annotations:
    workloads.kcp.dev/placement: '{"c1":{"replicas":2,"ready":1}}'
    workloads.kcp.dev/explain: '[{"cluster":"c1","chosen":true,"reason":"is a candidate","goal":3,"replicas":2}]'
status:
  conditions:
  - {type: Scheduled, status: "False", reason: DependencyMissing, message: "configmaps/settings does not exist: create it in this namespace", lastTransitionTime: null}`

func TestWorkloadsExplain(t *testing.T) {
	c, f := newCompute(t)
	f.put(t, "root:team", deployment)
	f.put(t, "root:team", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web--c1, namespace: default, labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: web}}
status: {conditions: [{type: Synced, status: "False", reason: QuotaExceeded, message: "exceeded quota: pods", lastTransitionTime: null}]}`)
	f.put(t, "root:team", `
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: shop
  annotations:
    workloads.kcp.dev/schedule-error: "NotNeeded: no workload needs it, so it is on no cluster"
    workloads.kcp.dev/placement: '{}'
    workloads.kcp.dev/explain: '[{"cluster":"c1","chosen":false,"reason":"no workload there needs it","goal":0,"replicas":0}]'`)
	explain := func(arg string, o workloadsExplainOptions) string {
		t.Helper()
		env, out, _ := fakeEnv()
		o.env, o.object.workspace = env, "root:team"
		require.NoError(t, o.object.complete(arg))
		require.NoError(t, o.run(t.Context(), c))
		return out.String()
	}
	want := `deployments.apps web, namespace default of root:team
Scheduled: False, DependencyMissing: configmaps/settings does not exist: create it in this namespace

CLUSTER   CHOSEN   GOAL     REPLICAS   READY    SYNCED                                       REASON
c1        yes      3        2          1        False, QuotaExceeded: exceeded quota: pods   is a candidate
c2        no       <none>   <none>     <none>   <none>                                       it is not ready (HeartbeatMissed)
`
	for _, arg := range []string{"deployment/web", "Deploy/web", "deployments.apps/web"} {
		require.Equal(t, want, explain(arg, workloadsExplainOptions{object: rootArg{namespace: "default"}}))
	}
	require.Equal(t, `configmaps settings, namespace shop of root:team
Scheduled: False, NotNeeded: no workload needs it, so it is on no cluster

CLUSTER   CHOSEN   GOAL     REPLICAS   READY    SYNCED   REASON
c1        no       <none>   <none>     <none>   <none>   no workload there needs it
c2        no       <none>   <none>     <none>   <none>   it is not ready (HeartbeatMissed)
`, explain("cm/settings", workloadsExplainOptions{object: rootArg{namespace: "shop"}}))
	require.Equal(t, "c1 QuotaExceeded 2", strings.TrimSpace(explain("deployment/web", workloadsExplainOptions{
		object: rootArg{namespace: "default"}, output: "jsonpath={.clusters[0].cluster} {.clusters[0].synced.reason} {.clusters[0].share.replicas}",
	})))
}

func TestWorkloadsExplainFailures(t *testing.T) {
	c, f := newCompute(t)
	object := func(kind, name, metadata string) {
		version := map[string]string{"Deployment": "apps/v1"}[kind]
		f.put(t, "root:team", fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: default%s}}", max(version, "v1"), kind, name, metadata))
	}
	object("Deployment", "new", "")
	object("Deployment", "web--c1", `, labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: web}`)
	object("Deployment", "mine", `, labels: {workloads.kcp.dev/cluster: c2}`)
	object("Deployment", "broken", `, annotations: {workloads.kcp.dev/explain: "{"}`)
	object("ConfigMap", "idle", "")
	for _, tc := range []struct{ arg, workspace, want, hint string }{
		{"web", "root:team", `"web" is not an object`, "deployment/web"},
		{"deployment/web", "", "--workspace is required", "-w root:team"},
		{"deployment/web", "root:team", `deployments.apps "web" does not exist in namespace default of root:team`, "--in"},
		{"deploymnet/web", "root:team", `there is no kind "deploymnet"`, "did you mean deployment?"},
		{"deployment/web", "root:other", "workspace root:other does not use the APIs", "workspaceType"},
		{"deployment.batch/web", "root:team", `there is no kind "deployment.batch"`, "deployment"},
		{"event/web", "root:team", `there is no kind "event"`, ""},
		{"deployment/new", "root:team", "the controller has not scheduled new yet", "logs workloads/controller"},
		{"deployment/web--c1", "root:team", "the part of web that runs on cluster c1", "specify deployment/web"},
		{"deployment/mine", "root:team", "it is on cluster c2", "without the label"},
		{"deployment/broken", "root:team", "annotation workloads.kcp.dev/explain of Deployment broken", ""},
		{"configmap/idle", "root:team", "no workload needs it", "workloads.kcp.dev/spread"},
	} {
		t.Run(tc.arg+" "+tc.workspace, func(t *testing.T) {
			env, out, _ := fakeEnv()
			o := &workloadsExplainOptions{env: env, object: rootArg{workspace: tc.workspace, namespace: "default"}}
			err := o.object.complete(tc.arg)
			if err == nil {
				err = o.run(t.Context(), c)
			}
			require.ErrorContains(t, err, tc.want)
			require.Contains(t, clierr.Hint(err), tc.hint)
			require.Empty(t, out.String())
		})
	}
}

// The API can be one that no cluster serves, whether it is published or not.
func TestWorkloadsExplainOfAnAPIThatNoClusterServes(t *testing.T) {
	c, f := newCompute(t)
	f.put(t, "root:team", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: new, namespace: default}}")
	for name, apis := range map[string]string{
		"c1": `[{group: apps, resource: deployments, version: v1, state: Incompatible, message: "spec.paused: the type differs"},
			{group: networking.k8s.io, resource: ingresses, state: Ignored, message: the cluster does not serve ingresses.networking.k8s.io}]`,
		"c2": `[{group: apps, resource: deployments, version: v1, state: Incompatible, message: "spec.paused: the field is missing", accept: {value: x, lost: [spec]}},
			{group: networking.k8s.io, resource: ingresses, state: Ignored, message: "kcp refuses its schema: no"}]`,
	} {
		var list []any
		require.NoError(t, yaml.Unmarshal([]byte(apis), &list))
		mergeInto(f.objects["root:compute Cluster/"+name].Object, map[string]any{"status": map[string]any{"apis": list}})
	}
	const ingresses = "no cluster serves ingresses.networking.k8s.io: c1: Ignored: the cluster does not serve ingresses.networking.k8s.io; " +
		"c2: Ignored: kcp refuses its schema: no"
	for arg, tc := range map[string]struct{ want, hint string }{
		"deployment/new":                {"no cluster serves deployments.apps: c1: Incompatible: spec.paused: the type differs; c2: Incompatible: spec.paused: the field is missing", "these would serve it: c2"},
		"ingress/web":                   {ingresses, "Add a cluster that serves it"},
		"ingresses.networking.k8s.io/x": {ingresses, "see kcpctl workloads apis"},
		"ingress.batch/web":             {`there is no kind "ingress.batch"`, ""},
	} {
		env, _, _ := fakeEnv()
		o := &workloadsExplainOptions{env: env, object: rootArg{workspace: "root:team", namespace: "default"}}
		require.NoError(t, o.object.complete(arg))
		err := o.run(t.Context(), c)
		require.ErrorContains(t, err, tc.want, arg)
		require.Contains(t, clierr.Hint(err), tc.hint)
	}
}

// Only what differs from what a user expects is shown.
func TestEvictedOf(t *testing.T) {
	for want, c := range map[string]metav1.Condition{
		"True":                       {Status: metav1.ConditionTrue, Reason: api.ReasonEvicted},
		"False (FullDisruption)":     {Status: metav1.ConditionFalse, Reason: api.ReasonFullDisruption},
		"False (CredentialsRefused)": {Status: metav1.ConditionFalse, Reason: api.ReasonCredentialsRefused},
		"<none>":                     {Status: metav1.ConditionFalse, Reason: api.ReasonEvictAfter},
	} {
		c.Type = api.ConditionEvicted
		require.Equal(t, want, evictedOf(&api.Cluster{Status: api.ClusterStatus{Conditions: []metav1.Condition{c}}}))
	}
}
