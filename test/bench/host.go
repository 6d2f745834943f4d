package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/test/apiserver"
	"github.com/kcpctl/kcpctl/test/standin"
)

// replicatedEtcd gives each shard an etcd with three members.
const replicatedEtcd = "etcd: {managed: {replicas: 3}}"

// host is an API server with the stand-in, for one setup.
type host struct {
	setup, kubeconfig, dir string

	site     *standin.Site
	kcp      *kcpErrors
	requests atomic.Int64 // so far
}

// onStandIn calls a function with a new API server for a setup, and removes everything afterwards.
func onStandIn(ctx context.Context, setup string, do func(context.Context, *host) error) (err error) {
	server, err := apiserver.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cluster, err := standin.Start(ctx, server)
	if err != nil {
		return err
	}
	h := &host{dir: server.Dir, setup: filepath.Join(server.Dir, "kcp.yaml"), kcp: &kcpErrors{}}
	defer h.kcp.end()
	simulated := fakekcp.New(h.kcp)
	simulated.Always("GET /metrics", fakekcp.Answer{Code: http.StatusOK, Body: shardMetrics()})
	h.site = cluster.Add("kcp", simulated)
	proxy, err := cluster.Proxy(func(p *standin.Proxy, s *standin.Site, w http.ResponseWriter, r *http.Request) {
		h.requests.Add(1)
		p.Do(s, w, r, nil)
	})
	if err != nil {
		return err
	}
	defer proxy.Stop()
	if h.kubeconfig, err = proxy.Kubeconfig(h.site, h.dir); err != nil {
		return err
	}
	if err := os.WriteFile(h.setup, []byte(setup), 0o600); err != nil {
		return err
	}
	return do(ctx, h)
}

// shardSeries is the number of series that a shard without workspaces has.
const shardSeries = 20_000

// shardMetrics returns the metrics of a shard, with as many series as a real one has.
func shardMetrics() string {
	var b strings.Builder
	b.WriteString("process_start_time_seconds 1\nprocess_resident_memory_bytes 4e+08\nprocess_cpu_seconds_total 1\n")
	for i := range shardSeries {
		fmt.Fprintf(&b, `apiserver_request_duration_seconds_bucket{component="kcp",dry_run="",group="apis.kcp.io",le="%d",`+
			`resource="apibindings",scope="resource",subresource="",verb="GET",version="v1alpha2"} %d`+"\n", i%20, i)
	}
	return b.String()
}

// run runs a command of kcpctl on the setup, without the configuration of the user.
func (h *host) run(ctx context.Context, c command) (cost, error) {
	before := h.requests.Load()
	c.args = append(c.args[:len(c.args):len(c.args)], "-f", h.setup, "--kubeconfig", h.kubeconfig, "--namespace", h.site.Namespace)
	c.env = append(c.env, "HOME="+h.dir, "XDG_STATE_HOME="+h.dir, "XDG_CONFIG_HOME="+h.dir, "KUBECONFIG=")
	u, err := c.run(ctx)
	return cost{u, h.requests.Load() - before}, err
}

// problems returns what was wrong in the installation, although the commands have succeeded.
func (h *host) problems() error {
	errs := h.kcp.all()
	for _, p := range h.site.Problems() {
		errs = append(errs, errors.New(p))
	}
	return errors.Join(errs...)
}

// kcpErrors has the errors of the simulated kcp. It implements fakekcp.T outside a test.
type kcpErrors struct {
	mu   sync.Mutex
	errs []error
	ends []func()
}

func (k *kcpErrors) Errorf(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, fmt.Errorf(format, args...))
}

func (k *kcpErrors) Cleanup(end func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ends = append(k.ends, end)
}

func (k *kcpErrors) all() []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]error{}, k.errs...)
}

// end stops the servers of the kcp.
func (k *kcpErrors) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, end := range k.ends {
		end()
	}
}
