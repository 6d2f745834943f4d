package long

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
	"github.com/kcpctl/kcpctl/test/oidc"
)

// policed is added to examples/sharded.yaml: components with every kind of connection. Its front-proxy is at a port of the
// node, so shards reach it from outside.
const policed = `  external: {hostname: %[2]s, port: 30040}
  virtualWorkspaces: [{name: alpha, shard: alpha}]
  monitoring: {}
`

const (
	withPolicies = "  networkPolicies: {clients: {kubernetes.io/metadata.name: %[1]s-clients}, metricsClients: {kubernetes.io/metadata.name: %[1]s-monitoring}}\n"

	denyEgress = `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"},
"spec": {"podSelector": {}, "policyTypes": ["Egress"]}}`
)

// TestClusterNetworkPolicies runs a setup with NetworkPolicies on a node that enforces them.
func TestClusterNetworkPolicies(t *testing.T) {
	n := newPoliced(t)
	framework.Step(t, "the node enforces NetworkPolicies", n.enforced)
	framework.Step(t, "up", func(t *testing.T) { n.Up(t) })
	framework.Step(t, "status", func(t *testing.T) { framework.IsReady(t, n.Setup) })
	framework.Step(t, "a second up writes nothing", func(t *testing.T) { framework.ChangesNothing(t, n.Setup) })
	framework.Step(t, "check passes", func(t *testing.T) { n.Passes(t, nil) })
	framework.Step(t, "workspaces on every shard", func(t *testing.T) { framework.CreateWorkspaces(t, n.Setup) })
	framework.Step(t, "a front-proxy reaches servers that the setup file names", n.elsewhere)
	n.start(t, n.Name) // a pod without a role in the namespace of the setup
	framework.Step(t, "only clients reach what runs", n.onlyClients)
	framework.Step(t, "renewed certificates", func(t *testing.T) { n.Certs(t, "renew").OK(t).Quiet(t) })
	framework.Step(t, "restart", func(t *testing.T) { n.Kcpctl(t, "restart", "--all", "--parallel", "3").OK(t).Quiet(t) })
	framework.Step(t, "another shard", func(t *testing.T) {
		n.Kcpctl(t, "add-shard", "gamma").OK(t).Quiet(t)
		n.CreateWorkspaces(t, "gamma")
		framework.ReadWorkspaces(t, n.Setup)
	})
	framework.Step(t, "only clients reach what runs now", n.onlyClients)
	framework.Step(t, "without NetworkPolicies everyone does", func(t *testing.T) {
		raw, err := os.ReadFile(n.File)
		require.NoError(t, err)
		policies := fmt.Sprintf(withPolicies, n.Name)
		require.Contains(t, string(raw), policies)
		n.Write(t, strings.Replace(string(raw), policies, "", 1))
		n.Up(t)
		n.reached(t, func(string, port) bool { return true })
	})
	n.cluster.Kubectl("delete", "pod", "dial", "--namespace", n.Name).Run(t.Context(), t).OK(t)
	framework.Step(t, "down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, n.Setup) })
}

// policedSetup is a setup on a node that enforces NetworkPolicies, with clients in namespaces.
type policedSetup struct {
	*framework.Setup

	cluster        *framework.Cluster
	issuer, mapped *oidc.Issuer
	// clients are the namespaces with a client.
	clients []string
}

func newPoliced(t *testing.T) *policedSetup {
	t.Helper()
	testbed, node := os.Getenv("E2E_TESTBED"), os.Getenv("E2E_KUBECONFIG_B")
	if testbed == "" || node == "" {
		t.Skip("E2E_TESTBED or E2E_KUBECONFIG_B is not set: this test needs node b of the testbed")
	}
	bed := func(args ...string) framework.Command {
		return framework.Command{Name: testbed, Args: append(args, "--node", "b")}
	}
	bed("network-policies", "on").Run(t.Context(), t).OK(t)
	t.Cleanup(func() { bed("network-policies", "off").Run(context.Background(), t).OK(t) })
	bed("image", "dial").Run(t.Context(), t).OK(t)
	t.Setenv("E2E_KUBECONFIG", node)
	s := framework.NewCluster(t, "sharded")
	n := &policedSetup{Setup: s, cluster: s.Runtime.(*framework.Cluster)}
	address := n.cluster.Address(t)
	n.issuer, n.mapped = framework.StartIssuer(t, address), framework.StartIssuer(t, address)
	proxy := framework.AsJSON(t, map[string]any{
		"name": "main", "expose": "NodePort",
		"authentication": map[string]any{"oidc": map[string]any{"issuerURL": n.issuer.URL, "clientID": oidc.ClientID, "ca": string(n.issuer.CA)}},
		"pathMappings":   []any{map[string]any{"path": "/.well-known/", "backend": n.mapped.URL, "ca": string(n.mapped.CA)}},
	})
	for old, replacement := range map[string]string{
		"cacheServer: {}": "cacheServer: {etcd: {managed: {storage: 1Gi}}}",
		"- name: main":    "- " + proxy,
		"- name: beta":    "- {name: beta, etcd: {managed: {storage: 1Gi, replicas: 3}}}",
	} {
		require.Contains(t, s.Text, old)
		s.Text = strings.Replace(s.Text, old, replacement, 1)
	}
	s.Text = strings.TrimSpace(s.Text) + "\n" + fmt.Sprintf(policed+withPolicies, s.Name, address)
	s.Write(t, s.Text)
	for _, suffix := range []string{"-others", "-clients", "-monitoring"} {
		n.cluster.Kubectl("create", "namespace", s.Name+suffix).Run(t.Context(), t).OK(t)
		t.Cleanup(func() {
			n.cluster.Kubectl("delete", "namespace", s.Name+suffix, "--wait=false").Run(context.Background(), t).OK(t)
		})
		n.start(t, s.Name+suffix)
	}
	return n
}

// start starts a client in a namespace.
func (n *policedSetup) start(t *testing.T, namespace string) {
	t.Helper()
	framework.Eventually(t.Context(), t, func() error { // a new namespace has no service account for a moment
		r := n.cluster.Kubectl("run", "dial", "--namespace", namespace, "--image", "kcpctl.dev/testbed/dial:v1").Run(t.Context(), t)
		if r.Code != 0 {
			return errors.New(r.Stderr)
		}
		return nil
	})
	n.cluster.Kubectl("wait", "pod/dial", "--namespace", namespace, "--for=condition=Ready", "--timeout=3m").Run(t.Context(), t).OK(t)
	n.clients = append(n.clients, namespace)
}

// dial returns the addresses that the client in a namespace reaches.
func (n *policedSetup) dial(t *testing.T, namespace string, addresses ...string) []string {
	t.Helper()
	args := []string{"exec", "dial", "--namespace", namespace, "--", "/dial"}
	return strings.Fields(n.cluster.Kubectl(append(args, addresses...)...).Run(t.Context(), t).OK(t).Stdout)
}

// enforced requires that a NetworkPolicy keeps a client from a server that it reaches otherwise.
func (n *policedSetup) enforced(t *testing.T) {
	namespace := n.clients[0]
	get := n.cluster.Kubectl("get", "service", "kube-dns", "--namespace", "kube-system", "--output", "jsonpath={.spec.clusterIP}")
	dns := net.JoinHostPort(get.Run(t.Context(), t).OK(t).Stdout, "53")
	becomes := func(want ...string) {
		framework.Eventually(t.Context(), t, func() error {
			if got := n.dial(t, namespace, dns); !slices.Equal(got, want) {
				return fmt.Errorf("a pod reaches %v, not %v", got, want)
			}
			return nil
		})
	}
	becomes(dns)
	apply := n.cluster.Kubectl("apply", "--namespace", namespace, "--filename", "-")
	apply.Stdin = denyEgress
	apply.Run(t.Context(), t).OK(t)
	becomes()
	n.cluster.Kubectl("delete", "networkpolicy", "deny", "--namespace", namespace).Run(t.Context(), t).OK(t)
	becomes(dns)
}

// elsewhere requires that the front-proxy reaches the issuer and the server of its path mapping.
func (n *policedSetup) elsewhere(t *testing.T) {
	url, token := n.Status(t).URL, n.issuer.Token(t, "alice", nil)
	ask := func(path string) framework.Result {
		args := []string{"--kubeconfig", os.DevNull, "--server", url, "--insecure-skip-tls-verify", "--token", token, "get", "--raw", path}
		return framework.Command{Name: "kubectl", Args: args}.Run(t.Context(), t)
	}
	framework.Eventually(t.Context(), t, func() error {
		if r := ask("/clusters/root/api/v1/namespaces"); !strings.Contains(r.Stderr, "#alice") { // she is refused by name
			return fmt.Errorf("the token of the issuer is not accepted: %s", r.Stderr)
		}
		return nil
	})
	framework.Eventually(t.Context(), t, func() error {
		if r := ask("/.well-known/openid-configuration"); !strings.Contains(r.Stdout, n.mapped.URL) {
			return fmt.Errorf("the server of the path mapping does not answer: %s%s", r.Stdout, r.Stderr)
		}
		return nil
	})
}

// onlyClients requires that each client reaches the ports that are for it, and the front-proxy.
func (n *policedSetup) onlyClients(t *testing.T) {
	n.reached(t, func(namespace string, p port) bool {
		kind, _, _ := strings.Cut(p.component, "/")
		switch {
		case kind == "front-proxy":
			return true
		case strings.HasSuffix(namespace, "-clients"):
			return slices.Contains([]string{"root-shard", "shard", "virtual-workspaces"}, kind)
		case strings.HasSuffix(namespace, "-monitoring"):
			return kind != "etcd" || p.name == "metrics"
		}
		return false
	})
}

// port is a port of a pod, or of a Service.
type port struct{ component, name, address string }

// reached waits until each client reaches just the ports that it should.
func (n *policedSetup) reached(t *testing.T, should func(namespace string, p port) bool) {
	t.Helper()
	ports := n.ports(t)
	t.Logf("%d ports: %v", len(ports), ports)
	var all []string
	for _, p := range ports {
		all = append(all, p.address)
	}
	for _, namespace := range n.clients {
		framework.Eventually(t.Context(), t, func() error {
			open, errs := n.dial(t, namespace, all...), []error{}
			for _, p := range ports {
				if is := slices.Contains(open, p.address); is != should(namespace, p) {
					errs = append(errs, fmt.Errorf("a pod in %s reaches %v: %t", namespace, p, is))
				}
			}
			return errors.Join(errs...)
		})
	}
}

// ports returns the ports of all pods and Services of the setup.
func (n *policedSetup) ports(t *testing.T) (out []port) {
	t.Helper()
	for _, o := range n.cluster.List(t.Context(), t, "pods,services", "--namespace", n.Name, "--selector", "kcpctl.dev/setup="+n.Name) {
		component := o.GetLabels()["kcpctl.dev/component"] + "/" + o.GetLabels()["kcpctl.dev/name"]
		if o.GetKind() == "Pod" {
			var pod corev1.Pod
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &pod))
			for _, p := range pod.Spec.Containers[0].Ports {
				if pod.DeletionTimestamp != nil {
					break // the restart has replaced it
				}
				out = append(out, port{component, p.Name, net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(p.ContainerPort))})
			}
			continue
		}
		var service corev1.Service
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &service))
		if service.Spec.ClusterIP == corev1.ClusterIPNone {
			continue
		}
		for _, p := range service.Spec.Ports {
			out = append(out, port{component, p.Name, net.JoinHostPort(service.Spec.ClusterIP, fmt.Sprint(p.Port))})
		}
	}
	require.Greater(t, len(out), 20)
	return out
}
