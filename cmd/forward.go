package cmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/local"
	"github.com/kcpctl/kcpctl/internal/proxy"
	"github.com/kcpctl/kcpctl/internal/run"
)

// forward serves a proxy to the setup's components while a command runs, or until it is interrupted.
func (o *kubeconfigOptions) forward(ctx context.Context, s *session, rt run.Runtime, owner kubeconfig.Owner, content []byte) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the proxy: %w", err)
	}
	content, err = kubeconfig.WithProxy(content, "http://"+l.Addr().String())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	srv := proxy.New(s.Topology, rt, func(err error) { s.note(err.Error()) })
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return srv.Serve(ctx, l) })
	g.Go(func() error {
		defer stop()
		if len(o.command) > 0 {
			return o.runCommand(ctx, content)
		}
		if err := o.deliver(ctx, owner, content); err != nil {
			return err
		}
		s.note("the kubeconfig works until you press Ctrl-C")
		<-ctx.Done()
		return nil
	})
	return g.Wait()
}

// runCommand runs the command with the kubeconfig in KUBECONFIG, and ends with its exit code.
func (o *kubeconfigOptions) runCommand(ctx context.Context, content []byte) error {
	dir, remove, err := local.PrivateDir(o.Getenv)
	if err != nil {
		return fmt.Errorf("make a folder for the kubeconfig: %w", err)
	}
	defer remove()
	file := filepath.Join(dir, "kubeconfig")
	if err := kubeconfig.WriteFile(file, content); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, o.command[0], o.command[1:]...)
	c.Env = append(os.Environ(), "KUBECONFIG="+file)
	c.Stdin, c.Stdout, c.Stderr = o.Streams.In, o.Streams.Out.Writer, o.Streams.Err.Writer
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	err = c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return silent(max(exit.ExitCode(), clierr.Failed))
	}
	if err != nil {
		return clierr.New(clierr.Failed, "", "run %s: %w", o.command[0], err)
	}
	return nil
}
