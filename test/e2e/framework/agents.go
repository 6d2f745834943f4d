package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// Provider is the workspace of the APIExport. consumer is on the shard beta, and uses it. uninvolved does not.
	Provider, Consumer, uninvolved = "root:widgets", "root:team", "root:other"
	// secretOf is the name of the Secret that belongs to a Widget.
	secretOf = "%s-credentials"
)

// AgentSetup is a setup with an agent. Its CustomResourceDefinition and its PublishedResource have names of their own,
// because other tests use the same cluster.
const AgentSetup = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %[1]s}
spec:%[2]s
  kubeconfigs:
  - {name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}
  workspaces:
  - {name: team, selector: {name: beta}}
  - {name: other, selector: {name: alpha}}
`

const WidgetAgent = `  agents:
  - name: widgets%[2]s
    workspace: root:widgets
    apiExport: widgets.%[1]s.example.com
    bind: [root:team]
    publishedResources:
    - name: %[1]s-widgets
      spec:
        resource: {apiGroup: %[1]s.example.com, kind: Widget, versions: [v1]}
        naming: {name: "{{ .Object.metadata.name }}", namespace: "{{ .ClusterName }}"}
        related:
        - identifier: credentials
          origin: service
          kind: Secret
          cleanup: true
          object: {template: {template: "{{ .Object.metadata.name }}-credentials"}}
    definitions:
    - apiVersion: apiextensions.k8s.io/v1
      kind: CustomResourceDefinition
      metadata: {name: widgets.%[1]s.example.com}
      spec:
        group: %[1]s.example.com
        scope: Namespaced
        names: {kind: Widget, plural: widgets, singular: widget}
        versions:
        - name: v1
          served: true
          storage: true
          subresources: {status: {}}
          schema:
            openAPIV3Schema:
              type: object
              properties:
                spec: {type: object, properties: {size: {type: integer}}}
                status: {type: object, properties: {phase: {type: string}}}
`

// Agents is a setup with an agent that publishes the Widgets of a cluster.
type Agents struct {
	*Setup
	// Service is the place of the agent, and kcp is the one of the servers of kcp.
	Service, Kcp *Cluster
	// via is a proxy to the host names of the setup. Without one they are dialled directly.
	via     *neturl.URL
	widgets schema.GroupVersionResource
	// namespaces are those of workspaces on the service cluster. The agent creates them, and does not remove them.
	namespaces []string
}

// NewAgents returns a setup whose agent runs on a node of the testbed. The image of the agent is given to the node.
func NewAgents(t *testing.T, s *Setup, service *Cluster, node string) *Agents {
	t.Helper()
	if testbed := os.Getenv("E2E_TESTBED"); testbed != "" {
		Command{Name: testbed, Args: []string{"image", "api-syncagent", "--node", node}}.Run(t.Context(), t).OK(t)
	}
	a := &Agents{Setup: s, Service: service,
		widgets: schema.GroupVersionResource{Group: s.Name + ".example.com", Version: "v1", Resource: "widgets"}}
	t.Cleanup(func() {
		for _, o := range append(a.namespaces, "customresourcedefinition/"+a.Export()) {
			a.Service.Kubectl("delete", o, "--ignore-not-found", "--wait=false").Run(context.Background(), t).OK(t)
		}
	})
	return a
}

// NewAgentsInside returns a setup whose components and agent are on the same cluster, in two namespaces. The names of
// its Services are found after up.
func NewAgentsInside(t *testing.T, spec string) (*Agents, *Names) {
	t.Helper()
	kubeconfig := Given(t, "E2E_KUBECONFIG")
	z, n := NewPlaces(t, map[string]string{Home: kubeconfig, "services": kubeconfig}), StartNames(t)
	s := NewSetup(t, "minimal", z.Setup, z.State, z)
	s.Env = append(s.Env, n.Environment()...)
	clusters := "\n  clusters:"
	for _, place := range z.names() {
		clusters += fmt.Sprintf("\n  - {name: %s, kubeconfig: %s, namespace: %s}", place, kubeconfig, z.Places[place].Namespace)
	}
	s.Text = fmt.Sprintf(AgentSetup, s.Name, clusters+spec) + fmt.Sprintf(WidgetAgent, s.Name, "\n    cluster: services")
	s.Write(t, s.Text)
	a := NewAgents(t, s, z.Places["services"], "a")
	a.Kcp, a.via = z.Places[Home], n.Address(t)
	return a, n
}

// Export is the name of the APIExport, and of the CustomResourceDefinition.
func (a *Agents) Export() string { return a.widgets.Resource + "." + a.widgets.Group }

// Lead lets clients find the Services of a cluster as those in the cluster do.
func (n *Names) Lead(t *testing.T, c *Cluster) {
	t.Helper()
	var list corev1.ServiceList
	r := c.Kubectl("get", "services", "--namespace", c.Namespace, "--output", "json").Run(t.Context(), t).OK(t)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &list))
	for _, s := range list.Items {
		for _, p := range s.Spec.Ports {
			host := fmt.Sprintf("%s.%s.svc.cluster.local", s.Name, s.Namespace)
			n.Set(net.JoinHostPort(host, fmt.Sprint(p.Port)), net.JoinHostPort(s.Spec.ClusterIP, fmt.Sprint(p.Port)))
		}
	}
}

// Connect returns a client of a workspace, with a new credential of an administrator.
func (a *Agents) Connect(ctx context.Context, workspace string) (dynamic.Interface, error) {
	cmd, cancel := a.Command("kubeconfig", "--user", "e2e", "--group", "system:kcp:admin", "--workspace", workspace).Prepare(ctx)
	defer cancel()
	raw, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Timeout = -1, requestPatience
	if a.via != nil {
		config.Proxy = http.ProxyURL(a.via)
	}
	return dynamic.NewForConfig(config)
}

// In returns a client of a workspace.
func (a *Agents) In(t *testing.T, workspace string) dynamic.Interface {
	t.Helper()
	client, err := a.Connect(t.Context(), workspace)
	require.NoError(t, err)
	return client
}

// Below returns a client of the service cluster.
func (a *Agents) Below(t *testing.T) dynamic.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", a.Service.Kubeconfig)
	require.NoError(t, err)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return client
}

// Widget returns a Widget of a user.
func (a *Agents) Widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": a.widgets.GroupVersion().String(), "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": "default"}, "spec": map[string]any{"size": int64(3)},
	}}
}

// Of returns the Widgets of a namespace.
func (a *Agents) Of(client dynamic.Interface, namespace string) dynamic.ResourceInterface {
	return client.Resource(a.widgets).Namespace(namespace)
}

// Namespace returns the namespace of a workspace on the service cluster, which has the name of its logical cluster.
func (a *Agents) Namespace(t *testing.T, workspace string) string {
	t.Helper()
	clusters := a.In(t, workspace).Resource(schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "logicalclusters"})
	var o *unstructured.Unstructured
	Eventually(t.Context(), t, func() (err error) { // a front-proxy learns of a new workspace after it is Ready (kcp#3858)
		o, err = clusters.Get(t.Context(), "cluster", metav1.GetOptions{})
		return err
	})
	name := o.GetAnnotations()["kcp.io/cluster"]
	require.NotEmpty(t, name)
	if o := "namespace/" + name; !slices.Contains(a.namespaces, o) {
		a.namespaces = append(a.namespaces, o)
	}
	return name
}

// Serves creates a Widget in a workspace. It must arrive on the service cluster, and its status and its Secret must
// come back.
func (a *Agents) Serves(t *testing.T, workspace, name string) {
	t.Helper()
	client, below, namespace := a.In(t, workspace), a.Below(t), a.Namespace(t, workspace)
	Eventually(t.Context(), t, func() error { // as soon as the workspace serves the API
		_, err := a.Of(client, "default").Create(t.Context(), a.Widget(name), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // an earlier try did it, and its answer was lost
			return nil
		}
		return err
	})
	began := time.Now()
	Eventually(t.Context(), t, func() error {
		_, err := a.Of(below, namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err
	})
	t.Logf("Widget %s of %s is on the service cluster after %s", name, workspace, time.Since(began).Round(10*time.Millisecond))

	secret := fmt.Sprintf(secretOf, name)
	_, err := below.Resource(SecretGVR).Namespace(namespace).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": secret}, "stringData": map[string]any{"password": name},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = a.Of(below, namespace).Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"Ready"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	Eventually(t.Context(), t, func() error {
		o, err := a.Of(client, "default").Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && fmt.Sprint(o.Object["status"]) != "map[phase:Ready]" {
			err = fmt.Errorf("Widget %s has status %v", name, o.Object["status"])
		}
		return err
	})
	Eventually(t.Context(), t, func() error {
		_, err := client.Resource(SecretGVR).Namespace("default").Get(t.Context(), secret, metav1.GetOptions{})
		return err
	})
}

// Release deletes a Widget. Its copy and the copy of its Secret must go too.
func (a *Agents) Release(t *testing.T, workspace, name string) {
	t.Helper()
	client, below, namespace := a.In(t, workspace), a.Below(t), a.Namespace(t, workspace)
	require.NoError(t, a.Of(client, "default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	a.gone(t, a.Of(client, "default"), name)
	a.gone(t, a.Of(below, namespace), name)
	a.gone(t, client.Resource(SecretGVR).Namespace("default"), fmt.Sprintf(secretOf, name))
}

// gone waits until an object does not exist.
func (a *Agents) gone(t *testing.T, in dynamic.ResourceInterface, name string) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		o, err := in.Get(t.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("%s %s is still there, with the finalizers %v", o.GetKind(), name, o.GetFinalizers())
	})
}
