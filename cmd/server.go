package cmd

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/tools/metrics"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
)

// serverFlags are flags of the servers, controller and syncer. They have the names that servers of Kubernetes use.
type serverFlags struct {
	healthAddress string
	verbosity     int
}

func (f *serverFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.healthAddress, "health-probe-bind-address", "",
		"address to serve /healthz, /readyz and /metrics on, such as :8081 (empty serves none)")
	flags.IntVarP(&f.verbosity, "v", "v", 2, "verbosity of the log")
}

// start sets the log up, and serves the probe until the context ends. It returns a context with the log, which other
// commands do not have.
func (f *serverFlags) start(ctx context.Context, env *Env, p *probe.Probe) (context.Context, error) {
	if env.Serve != nil {
		env.Serve()
	}
	clientfeatures.FeatureGates().Enabled(clientfeatures.WatchListClient) // the first question logs all features, unless the verbosity is 0
	logs := flag.NewFlagSet("log", flag.ContinueOnError)
	klog.InitFlags(logs)
	if err := logs.Set("v", strconv.Itoa(f.verbosity)); err != nil {
		return nil, clierr.New(clierr.BadInput, "specify a number", "--v: %w", err)
	}
	ctx = klog.NewContext(ctx, klog.Background())
	if f.healthAddress == "" {
		return ctx, nil
	}
	metrics.Register(metrics.RegisterOpts{RequestResult: &p.Requests})
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.healthAddress)
	if err != nil {
		return nil, clierr.New(clierr.Failed, "specify another --health-probe-bind-address", "serve probes: %w", err)
	}
	s := &http.Server{Handler: p.Handler(), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Cannot serve probes")
		}
	}()
	return ctx, nil
}
