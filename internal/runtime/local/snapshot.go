package local

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// etcdSecrets is the directory in which an embedded etcd keeps the certificates for its client port, which it makes
// itself (kcp-dev/embeddedetcd: server.go).
const etcdSecrets = "secrets"

// Snapshots returns a client of the embedded etcd of a server, which must run.
func (r *Runtime) Snapshots(_ context.Context, c *topology.Component) (*etcd.Client, error) {
	if c.Storage == nil || !c.Storage.Embedded {
		return nil, fmt.Errorf("%s has no embedded etcd", c.ID())
	}
	secrets := filepath.Join(c.DataDir, "etcd", etcdSecrets)
	var files [3][]byte
	for i, name := range []string{"ca/cert.pem", "client/cert.pem", "client/key.pem"} {
		raw, err := os.ReadFile(filepath.Join(secrets, filepath.FromSlash(name)))
		if err != nil {
			return nil, clierr.New(clierr.Failed, "run kcpctl up --local first", "%s has no data: %w", c.ID(), err)
		}
		files[i] = raw
	}
	address := net.JoinHostPort("localhost", strconv.Itoa(int(c.Storage.ClientPort)))
	return etcd.New(etcd.Options{
		Host: address, CA: files[0], Pair: pki.Pair{Cert: files[1], Key: files[2]},
		Dial: func(ctx context.Context) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp",
				net.JoinHostPort("127.0.0.1", strconv.Itoa(int(c.Storage.ClientPort))))
			if err != nil {
				return nil, clierr.New(clierr.Failed, "run kcpctl up --local first", "%s does not run: %w", c.ID(), err)
			}
			return conn, nil
		},
	})
}
