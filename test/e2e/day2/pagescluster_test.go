package day2

import (
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// newClusterTypist has kcp on the cluster of E2E_KUBECONFIG, in a namespace of the test.
func newClusterTypist(t *testing.T, example, name string) *framework.Typist {
	t.Helper()
	s := framework.NewClusterNamed(t, example, name, framework.NewName())
	return framework.NewTypist(t, s, "KCPCTL_NAMESPACE="+s.Runtime.(*framework.Cluster).Namespace)
}

// TestPageClusterReadme installs kcp on a cluster and removes it, as the README and the quickstart do.
func TestPageClusterReadme(t *testing.T) {
	p := newClusterTypist(t, "minimal", "demo")
	p.Types(t, "README.md", "cluster")
	p.Types(t, "docs/quickstart.md", "cluster")
}

// TestPageClusterOperations replaces a member of an etcd. Its pod was deleted, and it has no volume.
func TestPageClusterOperations(t *testing.T) {
	p := newClusterTypist(t, "minimal", "demo")
	p.Text += "spec:\n  etcd: {managed: {replicas: 3, ephemeral: true}}\n"
	p.Write(t, p.Text)
	p.Up(t)
	p.Before["kcpctl etcd members"] = func(t *testing.T) { loseMember(t, p, "demo-etcd-root-1") }
	// Any member can be the leader, and the reason depends on the time.
	p.Varies = []string{`([0-9a-f]{14,16} +)(yes|no)`, "${1}LEADER", `no: .*`, "no: REASON", `(LEADER +no +)-`, "${1}3Mi"}
	p.Types(t, "docs/operations.md", "cluster")
}

// loseMember deletes the pod of a member without a volume, and waits until etcd has rejected the new one.
func loseMember(t *testing.T, p *framework.Typist, pod string) {
	t.Helper()
	c := p.Runtime.(*framework.Cluster)
	c.Kubectl("delete", "pod", pod, "--namespace", c.Namespace).Run(t.Context(), t).OK(t)
	framework.Eventually(t.Context(), t, func() error { return c.Crashes(t, pod) })
}
