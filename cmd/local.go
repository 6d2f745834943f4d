package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/retry"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/version"
	"github.com/kcpctl/kcpctl/internal/runtime/local"
	"github.com/kcpctl/kcpctl/internal/runtime/local/download"
	"github.com/kcpctl/kcpctl/internal/runtime/workspace"
)

// localFlags are the flags of a setup on this machine.
type localFlags struct {
	enabled  bool
	binDir   string
	kcpURL   string
	basePort int32
}

func (l *localFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&l.enabled, "local", false, "use the processes on this machine, without Kubernetes")
	allow(f, anywhere, "local")
	listUnder(f, GroupConnection, "local")
}

// addBasePort adds the flag of a command that chooses ports, or shows which ones up would choose. All other commands
// read the recorded ports.
func (l *localFlags) addBasePort(f *pflag.FlagSet) {
	f.Int32Var(&l.basePort, "base-port", 0,
		"with --local: port of the first front-proxy; the others follow (default: the first free block)")
	requireFlag(f, "local", "base-port")
	listUnder(f, GroupConnection, "base-port")
}

// addBinDir adds the flag of a command that starts binaries, or compares them with the running ones.
func (l *localFlags) addBinDir(f *pflag.FlagSet) {
	f.StringVar(&l.binDir, "kcp-bin-dir", "",
		"with --local: directory of the kcp binaries (default: $PATH, else they are downloaded)")
	allow(f, anywhere, "kcp-bin-dir")
	requireFlag(f, "local", "kcp-bin-dir")
	listUnder(f, GroupConnection, "kcp-bin-dir")
}

// addURL adds the flag of a command that can download binaries.
func (l *localFlags) addURL(f *pflag.FlagSet) {
	f.StringVar(&l.kcpURL, "kcp-url", "", "with --local: mirror of kcp's release page")
	allow(f, anywhere, "kcp-url")
	requireFlag(f, "local", "kcp-url")
	listUnder(f, GroupConnection, "kcp-url")
}

// isHere is a hint for a command without --local, if the setup is installed on this machine. It is "" otherwise.
func (s *session) isHere() string {
	if s.flags.local.enabled || !local.Installed(local.UserDirs(s.env.Getenv).State, s.file.Setup.Metadata.Name) {
		return ""
	}
	return fmt.Sprintf("kcp %q is installed on this machine: add --local for it", s.file.Setup.Metadata.Name)
}

// orLocal adds to an error about a cluster that the setup is installed on this machine, if it is.
func (s *session) orLocal(err error) error {
	here := s.isHere()
	if err == nil || here == "" {
		return err
	}
	if hint := clierr.Hint(err); strings.Contains(hint, cluster.HintLocal) { // it is more than a guess
		return &clierr.Error{Err: err, Code: clierr.Code(err), Hint: strings.Replace(hint, cluster.HintLocal, here, 1)}
	}
	return clierr.Also(err, here)
}

// explained adds the next step to an error that can come from any request: kcp starts, or the setup is on this machine,
// and not on a cluster that does not answer, or not to these credentials.
func (s *session) explained(err error) error {
	if kcp.LacksAPI(err) {
		return clierr.Also(err, "wait until kcpctl status shows that kcp is ready, then run the command again")
	}
	if s == nil || !retry.IsUnreachable(err) && !retry.IsTLS(err) && !apierrors.IsUnauthorized(err) {
		return err
	}
	return s.orLocal(err)
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

// chosenAgain reports whether it has chosen other ports: another process has taken one since they were chosen, and
// nothing is started yet.
func (s *session) chosenAgain(ctx context.Context) (bool, error) {
	if s.layout == nil || !s.layout.LostPorts() {
		return false, nil
	}
	s.close() // releases the ports
	if err := s.claimPorts(ctx); err != nil {
		return false, err
	}
	s.reporter.note("another process has taken a port in the meantime: other ports were chosen")
	return true, s.open()
}

func (s *session) connectLocal() error {
	dirs := local.UserDirs(s.env.Getenv)
	if err := dirs.Validate(); err != nil {
		return err
	}
	rt := local.New(s.topology, s.layout, local.Options{
		Version: version.Get().Version, User: holder().User, Command: s.env.Command, Now: s.env.Now,
		Store:      s.directory,
		References: s.flags.directory(),
		Binaries: local.Binaries{
			Dir: s.flags.local.binDir, Path: s.env.Getenv("PATH"),
			Source: binarySource(dirs, s.flags.local.kcpURL, s.reporter.note),
		},
	})
	if err := rt.Moved(); err != nil {
		return err
	}
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

// stopTimeout limits how long --foreground waits for another run, and for processes to stop.
const stopTimeout = time.Minute

// inForeground watches the processes until the command is interrupted, and then stops them, also after a failed run. A
// run that was refused has changed nothing: what runs is not of this command.
func (o *upOptions) inForeground(ctx context.Context, s *session, err error) error {
	l := workspace.Below(s.runtime).(*local.Runtime)
	switch {
	case err == nil:
		s.env.note("running until you press Ctrl-C")
		err = l.Wait(ctx)
	case ctx.Err() == nil && !l.MayHaveChanged():
		return err
	}
	return errors.Join(err, s.stop(ctx, l, false))
}

// stop stops all processes although the command was interrupted, within stopTimeout, and with purge removes everything.
func (s *session) stop(ctx context.Context, l *local.Runtime, purge bool) error {
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := l.End(stopping, purge)
	if err == nil {
		return nil
	}
	down := "down"
	if purge {
		down = "down --purge"
	}
	return clierr.Remains(clierr.New(clierr.Code(err), "remove the cause, and run "+s.flags.command(down),
		"kcp %q may still run: %w", s.topology.Name, err))
}

// makeEphemeral makes the state directory of the setup. It fails if the directory exists: only the command that made
// it removes it in the end.
func (o *upOptions) makeEphemeral(s *session) error {
	if err := os.MkdirAll(filepath.Dir(s.layout.Dir), 0o700); err != nil {
		return notWritable(err, "set XDG_STATE_HOME to a directory that you can write to")
	}
	err := os.Mkdir(s.layout.Dir, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return clierr.New(clierr.Failed,
		"omit --ephemeral, or remove the setup first: "+s.flags.command("down --purge")+
			"; or use another metadata.name",
		"setup %q exists on this machine, and --ephemeral would remove its data", s.file.Setup.Metadata.Name)
}

// endEphemeral runs the command with a kubeconfig, or waits until kcpctl is interrupted, and watches the processes.
// Then it removes the setup, also after a failed run.
func (o *upOptions) endEphemeral(ctx context.Context, s *session, err error) error {
	l := workspace.Below(s.runtime).(*local.Runtime)
	if err == nil && len(o.command) == 0 {
		s.env.note("running until you press Ctrl-C, which removes everything")
		err = l.Wait(ctx)
	} else if err == nil {
		err = during(ctx, s, l.Wait, (&kubeconfigOptions{env: s.env, setup: *s.flags, command: o.command}).handOver)
	}
	return errors.Join(err, s.stop(ctx, l, true))
}

// during watches the processes while a task runs. It ends with the task, or when a process has failed for good.
func during(
	ctx context.Context, s *session, watch func(context.Context) error, task func(context.Context, *session) error,
) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return watch(ctx) })
	g.Go(func() error {
		defer end()
		return task(ctx, s)
	})
	return g.Wait()
}
