package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/internal/local"
	"github.com/kcpctl/kcpctl/internal/local/download"
	"github.com/kcpctl/kcpctl/internal/version"
	"github.com/kcpctl/kcpctl/internal/workspace"
)

// localFlags are the flags of a setup on this machine.
type localFlags struct {
	enabled  bool
	binDir   string
	kcpURL   string
	basePort int32
}

func (l *localFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&l.enabled, "local", false, "run the setup as processes on this machine, without Kubernetes")
	f.StringVar(&l.binDir, "kcp-bin-dir", "", "with --local: directory of the kcp binaries (default: $PATH, else they are downloaded)")
	f.StringVar(&l.kcpURL, "kcp-url", "", "with --local: mirror of kcp's release page")
	f.Int32Var(&l.basePort, "base-port", 0, "with --local: port of the first front-proxy; the others follow (default: the first free block)")
	allow(f, anywhere, "local", "kcp-bin-dir", "kcp-url", "base-port")
}

// useLocal builds the topology of the session's file on this machine.
func (s *session) useLocal() error {
	if s.layout == nil {
		dirs := local.UserDirs(s.env.Getenv)
		if err := dirs.Validate(); err != nil {
			return err
		}
		layout, err := local.NewLayout(dirs.State, s.file.Setup.Metadata.Name, s.flags.local.basePort)
		if err != nil {
			return err
		}
		s.layout = layout
	}
	t, err := s.layout.Topology(s.file.Setup)
	if err != nil {
		return err
	}
	s.topology = t
	return nil
}

// claimPorts chooses free ports for a setup on this machine that a command is about to start, and keeps other setups
// from choosing the same ones. Commands that only show a setup do not call it: they listen on no port.
func (s *session) claimPorts(ctx context.Context) error {
	if s.layout == nil {
		return nil
	}
	if err := s.layout.ReservePorts(ctx, s.file.Setup); err != nil {
		return err
	}
	return s.useLocal()
}

// connectLocal opens the runtime of this machine.
func (s *session) connectLocal() error {
	dirs := local.UserDirs(s.env.Getenv)
	if err := dirs.Validate(); err != nil {
		return err
	}
	rt := local.New(s.topology, s.layout, local.Options{
		Version: version.Get().Version, User: holder().User, Now: s.env.Now, Store: s.directory,
		References: s.flags.directory(),
		Binaries: local.Binaries{
			Dir: s.flags.local.binDir, Path: s.env.Getenv("PATH"),
			Source: binarySource(dirs, s.flags.local.kcpURL, s.reporter.note),
		},
	})
	s.wrap(rt)
	return nil
}

// downloadProgress reports every tenth of a download.
func downloadProgress(notify func(string)) func(download.Progress) {
	reported := map[string]int64{}
	return func(p download.Progress) {
		if p.Total == 0 {
			return
		}
		if step := p.Done * 10 / p.Total; reported[p.Name] != step+1 {
			reported[p.Name] = step + 1
			notify(fmt.Sprintf("download %s: %d%% of %d MB", p.Name, step*10, p.Total>>20))
		}
	}
}

// stopTimeout limits how long --foreground waits for processes to stop.
const stopTimeout = time.Minute

// stay watches the processes until the command is interrupted, and then stops them, also after a run that failed.
func (s *session) stay(ctx context.Context, err error) error {
	l, ok := workspace.Below(s.runtime).(*local.Runtime)
	if !ok {
		return err
	}
	if err == nil {
		s.env.note("running until you press Ctrl-C")
		err = l.Wait(ctx)
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(err, l.StopAll(stopping))
}
