package long

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	internal "github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestServersListenOnBothFamilies starts kcp with the bind address of pods. It must listen on all addresses of both
// families, so that pods serve in IPv4, IPv6 and dual-stack clusters.
func TestServersListenOnBothFamilies(t *testing.T) {
	text, err := examples.Read("minimal")
	require.NoError(t, err)
	f, err := internal.Parse("kcp.yaml", text)
	require.NoError(t, err)
	address := topology.Build(f.Setup).Root().BindAddress

	port := freePorts(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	kcp := framework.Command{Name: filepath.Join(framework.Given(t, "E2E_KCP_BIN_DIR"), "kcp"), Args: []string{
		"start", "--root-directory=" + t.TempDir(), "--bind-address=" + address, "--secure-port=" + port[0],
		"--embedded-etcd-client-port=" + port[1], "--embedded-etcd-peer-port=" + port[2],
	}}
	cmd, done := kcp.Prepare(ctx)
	require.NoError(t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait() // it was killed
		done()
	}()
	for _, loopback := range []string{"127.0.0.1", "::1"} {
		dialer := tls.Dialer{
			NetDialer: &net.Dialer{Timeout: 5 * time.Second},
			Config:    &tls.Config{InsecureSkipVerify: true}, // #nosec G402 -- only the connection is tested
		}
		framework.Eventually(t.Context(), t, func() error {
			conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(loopback, port[0]))
			if err != nil {
				return fmt.Errorf("%s listens on %s: %w", kcp.Name, address, err)
			}
			return conn.Close()
		})
	}
}

// freePorts returns unused ports. They are below those that systems give to clients, so that no connection takes one
// before kcp listens.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for port := 20000; port < 32000 && len(out) < n; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			continue
		}
		require.NoError(t, l.Close())
		out = append(out, strconv.Itoa(port))
	}
	require.Len(t, out, n)
	return out
}
