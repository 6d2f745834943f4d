package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/workload/apis/guard"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// through returns a client for a user whose requests the virtual workspace of an APIExport forwards.
func (m *member) through(user string) dynamic.Interface {
	m.Helper()
	m.create(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
		parse(m.T, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: "+server.Unique("through")+"}, "+
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, "+
			"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "+user+"}]}"))
	cfg := rest.CopyConfig(m.cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Extra: map[string][]string{"authorization.kcp.io/warrant": {"{}"}}}
	client, err := dynamic.NewForConfig(cfg)
	require.NoError(m, err)
	return client
}

// A syncer writes the status of an object, its own finalizer and one annotation. Others with its credential cannot make an
// object name other Secrets, or belong to another one.
func TestWhatASyncerMayChange(t *testing.T) {
	apiserver.Need(t)
	m := newMember(t)
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	namespace := m.space("demo-x", "c1")
	create := func(name, more string) {
		_, err := m.Resource(deployments).Namespace(namespace).Create(t.Context(), parse(t, "{apiVersion: apps/v1, kind: Deployment, "+
			"metadata: {name: "+name+", labels: {a: b"+more+"}, annotations: {workloads.kcp.dev/name: web}, finalizers: [workloads.kcp.dev/syncer, example.com/x]}, "+
			"spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}"), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	create("leaf", ", workloads.kcp.dev/cluster: c1")
	create("root", "")
	for _, o := range guard.Members([]schema.GroupResource{deployments.GroupResource()}, guard.User{Name: "controller"}) {
		m.create(guard.Resource(o), o)
	}
	syncer, controller := m.through("syncer"), m.through("controller")
	patch := func(as dynamic.Interface, name, text string, subresources ...string) error {
		raw, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		_, err = as.Resource(deployments).Namespace(namespace).Patch(t.Context(), name, types.MergePatchType, raw,
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
		return err
	}
	const secret = "{spec: {template: {spec: {volumes: [{name: v, secret: {secretName: stolen}}]}}}}"
	require.Eventually(t, func() bool { return patch(syncer, "leaf", secret) != nil }, time.Minute, 100*time.Millisecond,
		"the policy is in force after a moment")
	for text, refused := range map[string]bool{
		secret: true, "{spec: {replicas: 5}}": true,
		"{metadata: {labels: {workloads.kcp.dev/cluster: c2}}}":                          true,
		"{metadata: {labels: {a: c}}}":                                                   true,
		"{metadata: {labels: {claimed.internal.apis.kcp.io/x: b}}}":                      false,
		"{metadata: {annotations: {workloads.kcp.dev/name: other}}}":                     true,
		"{metadata: {annotations: {workloads.kcp.dev/name: null}}}":                      true,
		"{metadata: {annotations: {workloads.kcp.dev/scaled: 'true'}}}":                  true,
		"{metadata: {annotations: {workloads.kcp.dev/sync-error: refused}}}":             false,
		"{metadata: {annotations: {kcp.io/cluster: a1}}}":                                false,
		"{metadata: {ownerReferences: [{apiVersion: v1, kind: X, name: x, uid: x}]}}":    true,
		"{metadata: {finalizers: [example.com/x]}}":                                      false,
		"{metadata: {finalizers: [workloads.kcp.dev/syncer]}}":                           true,
		"{metadata: {finalizers: [workloads.kcp.dev/syncer, example.com/x, another/y]}}": true,
	} {
		err := patch(syncer, "leaf", text)
		if refused {
			require.ErrorContains(t, err, "a syncer changes only the status of an object", text)
		} else {
			require.NoError(t, err, text)
		}
		require.NoError(t, patch(controller, "leaf", text), "the controller: %s", text)
		require.NoError(t, patch(m.Interface, "leaf", text), "a user of the workspace: %s", text)
	}
	require.NoError(t, patch(syncer, "leaf", "{status: {replicas: 1}}", "status"))
	require.NoError(t, patch(syncer, "root", secret), "an object without the label is none of a cluster")
}
