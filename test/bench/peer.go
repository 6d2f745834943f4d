package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
)

// peerShards are the shards of sharded-test-server (kcp: cmd/sharded-test-server/shard.go).
var peerShards = []string{"root", "shard-1", "shard-2"}

// peerPorts are the ports of three shards, their etcds, the cache server and the front-proxy, which cannot be changed
// (kcp: cmd/sharded-test-server/{shard,cache,frontproxy}.go).
var peerPorts = []int{6443, 6444, 6445, 6446, 2379, 2380, 2381, 2382, 2383, 2384, 8010, 8011, 8012}

// peerRun is one run of sharded-test-server.
type peerRun struct {
	wall time.Duration
	rss  int64 // of all processes, in bytes
}

// startPeer starts sharded-test-server, waits for the same state as kcpctl up, and removes everything.
func (b *bench) startPeer(ctx context.Context, bin string) (r peerRun, err error) {
	if err := portsFree(); err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp("", "kcpctl-bench-peer-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, killAll(dir), os.RemoveAll(dir)) }()
	started := time.Now()
	ctx, stop, err := startPeerProcess(ctx, bin, dir)
	if err != nil {
		return r, err
	}
	defer stop()
	if err := peerServes(ctx, dir); err != nil {
		return r, fmt.Errorf("sharded-test-server: %w", err)
	}
	r.wall = time.Since(started)
	r.rss, err = residentMemory(dir)
	return r, err
}

// startPeerProcess starts the process. The context ends with the process. stop kills it with its children.
func startPeerProcess(ctx context.Context, bin, dir string) (_ context.Context, stop func(), err error) {
	logFile := filepath.Join(dir, "sharded-test-server.log")
	out, err := os.Create(logFile)
	if err != nil {
		return nil, nil, err
	}
	defer out.Close() //nolint:errcheck // the process has its own copy
	cmd := exec.Command(filepath.Join(bin, "sharded-test-server"), "--quiet",
		"--number-of-shards="+strconv.Itoa(len(peerShards)), "--work-dir-path="+dir, "--log-dir-path="+filepath.Join(dir, "log"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	// It runs binaries from PATH, unless it is in a clone of the kcp repository, where it builds them.
	cmd.Env = append(os.Environ(), "NO_GORUN=1", "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := cmd.Wait()
		log, _ := os.ReadFile(logFile)
		cancel(fmt.Errorf("ended (%v): %s", err, ends(string(log))))
	}()
	return ctx, func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		<-ended
	}, nil
}

// peerServes waits until the front-proxy is ready and has served a Ready workspace of each shard.
func peerServes(ctx context.Context, dir string) error {
	client, err := peerClient(ctx, filepath.Join(dir, ".kcp", "admin.kubeconfig"))
	if err != nil {
		return err
	}
	if err := until(ctx, func() error { return client.Ready(ctx) }); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, shard := range peerShards {
		g.Go(func() error { return client.Canary(ctx, shard, func(string) {}) })
	}
	return g.Wait()
}

// peerClient waits for the administrator's kubeconfig, and returns a client of the front-proxy with it.
func peerClient(ctx context.Context, file string) (client *kcp.Client, err error) {
	err = until(ctx, func() error {
		cfg, err := clientcmd.LoadFromFile(file)
		if err != nil {
			return err
		}
		server, user := cfg.Clusters["base"], cfg.AuthInfos["kcp-admin"]
		if server == nil || user == nil {
			return fmt.Errorf("%s is not complete", file)
		}
		client = kcp.New(kcp.Options{
			URL: server.Server, CA: server.CertificateAuthorityData,
			Pair: pki.Pair{Cert: user.ClientCertificateData, Key: user.ClientKeyData},
		})
		return nil
	})
	return client, err
}

// until retries a function until it succeeds or ctx ends.
func until(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// portsFree fails if a port of the peer is in use.
func portsFree() error {
	for _, port := range peerPorts {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("sharded-test-server needs port %d: %w; stop the process that uses it, or run this in its own network namespace: "+
				"unshare -n sh -c 'ip link set lo up && go run ./test/bench local'", port, err)
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}
