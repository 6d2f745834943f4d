//go:build e2e && long && day2

package e2e

import "testing"

// newClusterTypist has kcp on the cluster of E2E_KUBECONFIG, in a namespace of the test.
func newClusterTypist(t *testing.T, example, name string) *typist {
	t.Helper()
	s := newClusterNamed(t, example, name, newName())
	return newTypist(t, s, "KCPCTL_NAMESPACE="+s.runtime.(*cluster).namespace)
}

// TestPageClusterReadme installs kcp on a cluster and removes it, as the README and the quickstart do.
func TestPageClusterReadme(t *testing.T) {
	p := newClusterTypist(t, "minimal", "demo")
	p.types(t, "README.md", "cluster")
	p.types(t, "docs/quickstart.md", "cluster")
}

// TestPageClusterOperations replaces a member of an etcd. Its pod was deleted, and it has no volume.
func TestPageClusterOperations(t *testing.T) {
	p := newClusterTypist(t, "minimal", "demo")
	p.text += "spec:\n  etcd: {managed: {replicas: 3, ephemeral: true}}\n"
	p.write(t, p.text)
	p.up(t)
	p.before["kcpctl etcd members"] = func(t *testing.T) { p.loseMember(t, "demo-etcd-root-1") }
	// Any member can be the leader, and the reason depends on the time.
	p.varies = []string{`([0-9a-f]{16} +)(yes|no)`, "${1}LEADER", `no: .*`, "no: REASON", `(LEADER +no +)-`, "${1}3Mi"}
	p.types(t, "docs/operations.md", "cluster")
}

// loseMember deletes the pod of a member without a volume, and waits until etcd has rejected the new one.
func (p *typist) loseMember(t *testing.T, pod string) {
	t.Helper()
	c := p.runtime.(*cluster)
	c.kubectl("delete", "pod", pod, "--namespace", c.namespace).run(t.Context(), t).ok(t)
	eventually(t.Context(), t, func() error { return c.crashes(t, pod) })
}
