package framework

import (
	"context"
	"net"
	"strings"
	"testing"
)

// The releases of the tested upgrade.
const (
	OlderRelease = "v0.32.2"
	NewerRelease = "v0.32.3"
)

// Creates creates an object in a workspace, as soon as the front-proxy knows the workspace (kcp#3858), and the shard
// what its user may do.
func (s *Setup) Creates(t *testing.T, kubeconfig []string, args ...string) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		r := s.KubectlAs(t, kubeconfig, append([]string{"create"}, args...)...)
		if strings.Contains(r.Stderr, "already exists") { // an earlier try did it, and its answer was lost
			return nil
		}
		_, err := r.Output()
		return err
	})
}

// Dialer returns the function by which a client reaches the front-proxy: on a cluster, at the address of its load
// balancer.
func (s *Setup) Dialer(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	c, ok := s.Runtime.(*Cluster)
	if !ok {
		return (&net.Dialer{}).DialContext
	}
	r := c.Kubectl("get", "service", s.Name+"-front-proxy-main", "--namespace", c.Setup,
		"--output", "jsonpath={.status.loadBalancer.ingress[0].ip}:{.spec.ports[0].port}").Run(t.Context(), t).OK(t)
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, r.Stdout)
	}
}
