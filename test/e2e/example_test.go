//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
)

// TestClusterExamples plans every example on a real API server, which validates it without a write.
func TestClusterExamples(t *testing.T) {
	for _, name := range examples.Names() {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t, name)
			c := s.runtime.(*cluster)
			c.makeNamespace(t)
			credentials := object("v1", "Secret", "etcd-client") // of external-etcd.yaml
			credentials["stringData"] = map[string]string{"ca.crt": "ca", "tls.crt": "certificate", "tls.key": "key"}
			c.apply(t, "e2e", credentials)
			before := s.written(t)

			create := c.kubectl("apply", "--server-side", "--field-manager=kcpctl", "--dry-run=server", "--validate=strict", "--filename", "-")
			create.stdin = s.kcpctl(t, "render", "--pki-dir", t.TempDir()).ok(t).stdout
			r := create.run(t.Context(), t)
			require.Zero(t, r.code, r.stderr)
			require.Regexp(t, `(?m)^[1-9][0-9]* create`, s.kcpctl(t, "up", "--dry-run=server").ok(t).stdout)
			require.Equal(t, before, s.written(t), "a dry run writes nothing")
		})
	}
}
