package framework

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

var (
	ClusterGVR    = schema.GroupVersionResource{Group: "workloads.kcp.dev", Version: "v1alpha1", Resource: "clusters"}
	DeploymentGVR = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	SecretGVR     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	AccountGVR    = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	ConfigMapGVR  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	NamespaceGVR  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// Workloads is a setup with a controller, and a physical cluster without nodes: the test plays its controllers.
type Workloads struct {
	*testing.T
	*Setup
	Kcp      *rest.Config
	Server   *apiserver.Server
	Physical dynamic.Interface
}

func NewWorkloads(t *testing.T) *Workloads {
	t.Helper()
	server, err := apiserver.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	s := NewLocal(t, "workloads")
	w := &Workloads{T: t, Setup: s, Server: server}
	file, err := w.Server.Kubeconfig(apiserver.Admin)
	require.NoError(t, err)
	cfg, err := connect.File(file, "")
	require.NoError(t, err)
	w.Physical, err = dynamic.NewForConfig(cfg)
	require.NoError(t, err)
	s.Text = strings.Replace(s.Text, "    - name: c1", "    - name: c1\n      kubeconfig: "+file, 1)
	s.Text = strings.Replace(s.Text, "  - name: team", "  - {name: team, selector: {name: beta}, type: \"root:compute:workload\"}\n  external: {hostname: kcp.example.com} # not used on this machine\n  rootShard: {virtualWorkspaceURL: \"https://root.example.com\"}\n  shards: [{name: beta, virtualWorkspaceURL: \"https://beta.example.com\"}]\n  #", 1)
	s.Text = strings.Replace(s.Text, "\n    type: root:compute:workload", "", 1)
	s.Write(t, s.Text)
	s.Up(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the controller: %s", s.Command("logs", "workloads/controller").Run(context.Background(), t).Stdout)
		}
	})
	admin := filepath.Join(t.TempDir(), "kcp.kubeconfig")
	require.NoError(t, os.WriteFile(admin, []byte(s.Kcpctl(t, "kubeconfig", "admin").OK(t).Stdout), 0o600))
	w.Kcp, err = connect.KCP(admin, "")
	require.NoError(t, err)
	return w
}

// In returns a client for a workspace.
func (w *Workloads) In(workspace string) dynamic.Interface {
	w.Helper()
	d, err := dynamic.NewForConfig(connect.Workspace(w.Kcp, workspace))
	require.NoError(w, err)
	return d
}

func (w *Workloads) Eventually(condition func() error) {
	w.Helper()
	Eventually(w.Context(), w.T, condition)
}

// Apply creates an object as soon as the workspace serves its API.
func (w *Workloads) Apply(workspace string, r schema.GroupVersionResource, text string) {
	w.Helper()
	u := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(w, err)
	require.NoError(w, u.UnmarshalJSON(raw))
	client := w.In(workspace).Resource(r)
	w.Eventually(func() error {
		_, err := client.Namespace(u.GetNamespace()).Apply(w.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "e2e"})
		return err
	})
}

func (w *Workloads) Get(workspace string, r schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	w.Helper()
	return w.In(workspace).Resource(r).Namespace(namespace).Get(w.Context(), name, metav1.GetOptions{})
}

// IsReady compares the condition Ready of the Cluster.
func (w *Workloads) IsReady(status, reason string) error {
	o, err := w.Get("root:compute", ClusterGVR, "", "c1")
	if err != nil {
		return err
	}
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range all {
		if m := c.(map[string]any); m["type"] == "Ready" && m["status"] == status && m["reason"] == reason {
			return nil
		}
	}
	return fmt.Errorf("Cluster c1: %v", o.Object["status"])
}
