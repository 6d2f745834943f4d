package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/examples"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

var (
	podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	policies    = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	bindings    = policies.GroupVersion().WithResource("validatingadmissionpolicybindings")
)

// member is the API server as a physical cluster.
type member struct {
	*testing.T
	cfg *rest.Config
	dynamic.Interface
}

func newMember(t *testing.T) *member {
	t.Helper()
	kubeconfig, err := server.Kubeconfig(apiserver.Admin)
	require.NoError(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client, err := dynamic.NewForConfig(cfg)
	require.NoError(t, err)
	return &member{t, cfg, client}
}

// as returns a client for another user.
func (m *member) as(user string) dynamic.Interface {
	m.Helper()
	cfg := rest.CopyConfig(m.cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	client, err := dynamic.NewForConfig(cfg)
	require.NoError(m, err)
	return client
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &u.Object))
	return u
}

// create creates an object without a namespace until the test ends.
func (m *member) create(r schema.GroupVersionResource, o *unstructured.Unstructured) {
	m.Helper()
	apiserver.Remove(m, m.Resource(r), o.GetName())
	_, err := m.Resource(r).Create(m.Context(), o, metav1.CreateOptions{})
	require.NoError(m, err)
}

// space creates the namespace of a workspace, as a syncer does, and returns its name.
func (m *member) space(setup, cluster string) string {
	m.Helper()
	name := server.Unique("space")
	_, err := m.Resource(namespaces).Create(m.Context(), parse(m.T, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: "+
		"{workloads.kcp.dev/setup: %s, workloads.kcp.dev/cluster: %s, workloads.kcp.dev/workspace: 1a}}}", name, setup, cluster)), metav1.CreateOptions{})
	require.NoError(m, err)
	return name
}

// objectsOf returns the objects of a setup by their kinds, and the ID of the installation.
func objectsOf(t *testing.T, text string) (byKind map[string][]*unstructured.Unstructured, id string) {
	t.Helper()
	top := topology.Build(topologytest.Setup(t, text))
	state := pkitest.Issue(t, top, time.Now())
	objects, err := render.Objects(top, state)
	require.NoError(t, err)
	byKind = map[string][]*unstructured.Unstructured{}
	for _, o := range objects {
		byKind[o.GetKind()] = append(byKind[o.GetKind()], o.Unstructured)
	}
	return byKind, state.Installation.ID
}

// The rules bind all pods in namespaces of workspaces, also those that controllers of the cluster create, and no others.
// What Kubernetes itself adds to pods is permitted, and what runs already stays.
func TestRulesForPods(t *testing.T) {
	apiserver.Need(t)
	m := newMember(t)
	objects, id := objectsOf(t, `spec:
  workloads:
    clusters:
    - name: c1
      tenancy: {pods: {priorityClasses: [batch], tolerationKeys: [example.com/tenants], nodeSelector: {pool: tenants}}}
`)
	tenant, elsewhere, otherSetup := m.space(id, "c1"), m.space(id, "c2"), m.space("demo-other", "c1")
	for _, name := range []string{"batch", "high"} {
		m.create(schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"},
			parse(t, "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, value: 5, metadata: {name: "+name+"}}"))
	}
	pod := func(name, more, spec string) *unstructured.Unstructured {
		return parse(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s%s}, spec: {containers: [{name: c, image: i}], %s}}", name, more, spec))
	}
	before := pod("before", ", finalizers: [example.com/x]", "priorityClassName: high, tolerations: [{key: other, operator: Exists}]")
	_, err := m.Resource(podResource).Namespace(tenant).Create(t.Context(), before, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, o := range objects["ValidatingAdmissionPolicy"] {
		m.create(policies, o)
	}
	for _, o := range objects["ValidatingAdmissionPolicyBinding"] {
		m.create(bindings, o)
	}
	const nodes = "nodeSelector: {pool: tenants}"
	replicaSets := "system:serviceaccount:kube-system:replicaset-controller"
	owned := ", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u1, controller: true}]"
	create := func(user, namespace string, o *unstructured.Unstructured) error {
		_, err := m.as(user).Resource(podResource).Namespace(namespace).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	require.Eventually(t, func() bool { return create("u", tenant, pod("x", "", "nodeName: n1")) != nil }, time.Minute, 100*time.Millisecond,
		"the policy is in force after a moment")
	for _, tc := range []struct{ what, more, spec, refused string }{
		{"nothing", "", nodes, ""},
		{"a pod of a ReplicaSet", owned, nodes, ""},
		{"a permitted class", owned, nodes + ", priorityClassName: batch", ""},
		{"another class", owned, nodes + ", priorityClassName: high", "priorityClassName high is not permitted"},
		{"a class of Kubernetes", "", nodes + ", priorityClassName: system-node-critical", "priorityClassName system-node-critical is not permitted"},
		{"a permitted toleration", "", nodes + ", tolerations: [{key: example.com/tenants, operator: Exists}]", ""},
		{"tolerations that Kubernetes adds", owned, nodes + ", tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute}, " +
			"{key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}]", ""},
		{"another toleration", owned, nodes + ", tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]", "may only tolerate taints with the keys ['example.com/tenants']"},
		{"all taints", "", nodes + ", tolerations: [{operator: Exists}]", "may only tolerate taints"},
		{"a node", "", nodes + ", nodeName: n1", "must not have a nodeName"},
		{"nodes of others", "", "nodeSelector: {pool: control}", "must have the nodeSelector pool=tenants"},
		{"all nodes", owned, "", "must have the nodeSelector pool=tenants"},
	} {
		o := pod("x", tc.more, tc.spec)
		require.NoError(t, create(replicaSets, elsewhere, o), tc.what)
		require.NoError(t, create(replicaSets, otherSetup, o), tc.what)
		err := create(replicaSets, tenant, o)
		if tc.refused == "" {
			require.NoError(t, err, tc.what)
			continue
		}
		require.ErrorContains(t, err, tc.refused, tc.what)
	}
	patch := func(text string) error {
		raw, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		_, err = m.Resource(podResource).Namespace(tenant).Patch(t.Context(), "before", types.MergePatchType, raw, metav1.PatchOptions{})
		return err
	}
	live, err := m.Resource(podResource).Namespace(tenant).Get(t.Context(), "before", metav1.GetOptions{})
	require.NoError(t, err)
	tolerations, _, _ := unstructured.NestedSlice(live.Object, "spec", "tolerations")
	require.NoError(t, unstructured.SetNestedSlice(live.Object, append(tolerations, map[string]any{"key": "another", "operator": "Exists"}), "spec", "tolerations"))
	_, err = m.Resource(podResource).Namespace(tenant).Update(t.Context(), live, metav1.UpdateOptions{})
	require.ErrorContains(t, err, "may only tolerate taints", "a pod that runs gets no more")
	require.NoError(t, patch("{metadata: {labels: {a: b}}}"), "it is not refused for what it has")
	require.NoError(t, patch("{metadata: {finalizers: null}}"), "nor does it hang")
}

// An API server accepts the Cluster of the example, and in a namespace everything that its template has.
func TestTheTemplateOfAnExampleIsAccepted(t *testing.T) {
	apiserver.Need(t)
	m := newMember(t)
	text, err := examples.Read("workloads")
	require.NoError(t, err)
	objects, id := objectsOf(t, string(text))
	found := objects[api.KindCluster]
	require.Len(t, found, 1)
	crd, err := api.CRD()
	require.NoError(t, err)
	m.create(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, crd)
	var stored *unstructured.Unstructured
	require.Eventually(t, func() bool {
		stored, err = m.Resource(api.ClusterGVR()).Create(t.Context(), found[0], metav1.CreateOptions{})
		return err == nil
	}, time.Minute, 100*time.Millisecond, "the API is served after a moment")
	require.Equal(t, found[0].Object["spec"].(map[string]any)["tenancy"], stored.Object["spec"].(map[string]any)["tenancy"])
	cluster, err := api.ClusterOf(stored)
	require.NoError(t, err)
	require.Len(t, cluster.TemplateObjects(), 3)
	space := m.space(id, "c1")
	for _, object := range cluster.TemplateObjects() {
		o := api.ForWorkspace(object, "1a")
		r, ok := api.TemplateResource(o.GroupVersionKind())
		require.True(t, ok)
		_, err := m.Resource(r).Namespace(space).Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "x", DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err, o.GetKind())
	}
	for object, refused := range map[string]string{
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: admin}}": "must be a ResourceQuota (v1)",
		"{apiVersion: v1, kind: LimitRange, metadata: {}}":                                       "metadata.name is required",
	} {
		other := parse(t, strings.ReplaceAll("{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: c2}, spec: {syncMode: None, tenancy: {objects: [OBJECT]}}}",
			"OBJECT", object))
		_, err := m.Resource(api.ClusterGVR()).Create(t.Context(), other, metav1.CreateOptions{})
		require.ErrorContains(t, err, refused)
	}
}
