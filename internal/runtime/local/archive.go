package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
)

func (r *Runtime) addRevision(a plan.Applied) error {
	previous, err := r.historyData()
	if err != nil {
		return err
	}
	before, err := plan.DecodeHistory(previous)
	if err != nil {
		return err
	}
	after := plan.Remember(before, plan.Revision{
		Time: r.options.Now(), Version: r.options.Version, User: r.options.User, Setup: a.Setup, File: a.File,
		Only: a.Only,
	})
	if len(after) == 0 || len(before) > 0 && before[len(before)-1].Number == after[len(after)-1].Number {
		return nil
	}
	files, err := plan.EncodeHistory(after, previous)
	if err != nil {
		return err
	}
	return r.layout.writeHistory(files)
}

func (l *Layout) writeHistory(files map[string][]byte) error {
	for name, content := range files {
		if err := disk.WriteState(l.path(dirHistory, name), content); err != nil {
			return err
		}
	}
	old, err := os.ReadDir(l.path(dirHistory))
	if err != nil {
		return err
	}
	for _, f := range old {
		if _, ok := files[f.Name()]; !ok {
			if err := disk.RemoveState(l.path(dirHistory, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// History returns the setups that were applied last, oldest first.
func (r *Runtime) History(context.Context) ([]plan.Revision, error) {
	data, err := r.historyData()
	if err != nil {
		return nil, err
	}
	history, err := plan.DecodeHistory(data)
	for i := range history {
		history[i].Own = history[i].User == r.options.User
	}
	return history, err
}

func (r *Runtime) historyData() (map[string][]byte, error) {
	files, err := os.ReadDir(r.layout.path(dirHistory))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	data := map[string][]byte{}
	for _, f := range files {
		if data[f.Name()], err = os.ReadFile(r.layout.path(dirHistory, f.Name())); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// etcdSecrets is the directory in which an embedded etcd keeps the certificates for its client port, which it makes
// itself (kcp-dev/embeddedetcd: server.go).
const etcdSecrets = "secrets"

// Snapshots returns a client of the embedded etcd of a server, which must run.
func (r *Runtime) Snapshots(_ context.Context, c *topology.Component) (client *etcd.Client, doubt, err error) {
	if c.Storage == nil || !c.Storage.Embedded {
		return nil, nil, fmt.Errorf("%s has no embedded etcd", c.ID())
	}
	secrets := filepath.Join(c.DataDir, "etcd", etcdSecrets)
	var files [3][]byte
	for i, name := range []string{"ca/cert.pem", "client/cert.pem", "client/key.pem"} {
		raw, err := os.ReadFile(filepath.Join(secrets, filepath.FromSlash(name)))
		if err != nil {
			return nil, nil, clierr.New(clierr.Failed, "run kcpctl up first", "%s has no data: %w", c.ID(), err)
		}
		files[i] = raw
	}
	address := net.JoinHostPort("localhost", strconv.Itoa(int(c.Storage.ClientPort)))
	client, err = etcd.New(etcd.Options{
		Host: address, CA: files[0], Pair: pki.Pair{Cert: files[1], Key: files[2]},
		Dial: func(ctx context.Context) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp",
				net.JoinHostPort("127.0.0.1", strconv.Itoa(int(c.Storage.ClientPort))))
			if err != nil {
				return nil, clierr.New(clierr.Failed, "run kcpctl up first", "%s does not run: %w", c.ID(), err)
			}
			return conn, nil
		},
	})
	return client, nil, err
}
