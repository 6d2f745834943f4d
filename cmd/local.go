package cmd

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/local"
	"github.com/kcpctl/kcpctl/internal/local/download"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/version"
)

// localOptions say how a setup runs on this machine.
type localOptions struct {
	local    bool
	binDir   string
	kcpURL   string
	basePort int32
}

func (o *localOptions) addLocalFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.local, "local", false, "run the setup as processes of this machine, without Kubernetes")
	f.StringVar(&o.binDir, "kcp-bin-dir", "", "with --local: folder of kcp's binaries (default: $PATH, else they are downloaded)")
	f.StringVar(&o.kcpURL, "kcp-url", "", "with --local: mirror of kcp's release page")
	f.Int32Var(&o.basePort, "base-port", 0, "with --local: port of the first front-proxy, the others follow (default: the first free block)")
	allow(f, anywhere(), "local", "kcp-bin-dir", "kcp-url", "base-port")
}

// placeOnMachine lays the setup out on this machine.
func (s *session) placeOnMachine() error {
	if s.kubeconfig != "" || s.context != "" || s.namespace != "" || s.as != "" {
		return clierr.New(clierr.BadInput, "leave one of them out", "--local runs on this machine; --kubeconfig, --context, --namespace and --as are for clusters")
	}
	folders := local.UserFolders(s.Getenv)
	err := folders.Demand()
	if err != nil {
		return err
	}
	if s.layout, err = local.NewLayout(folders.State, s.File.Setup.Metadata.Name, s.basePort); err != nil {
		return err
	}
	s.Topology = topology.BuildLocal(s.File.Setup, s.layout.Topology())
	return nil
}

// choosePorts gives a setup that has none its ports on this machine, which no other setup can choose at the same time.
func (s *session) choosePorts(ctx context.Context) error {
	if !s.local {
		return nil
	}
	if err := s.layout.ChoosePorts(ctx, s.basePort); err != nil {
		return err
	}
	s.Topology = topology.BuildLocal(s.File.Setup, s.layout.Topology())
	return nil
}

func (s *session) openLocal() (run.Runtime, error) {
	folders := local.UserFolders(s.Getenv)
	if err := folders.Demand(); err != nil {
		return nil, err
	}
	h := holder()
	return local.New(s.Topology, s.layout, local.Options{
		Version: version.Get().Version, User: h.User, Now: s.Now, Store: s.directoryStore(),
		Binaries: local.Binaries{
			Dir: s.binDir, Path: s.Getenv("PATH"),
			Source: download.Source{
				URL: s.kcpURL, Dir: folders.Cache, OS: runtime.GOOS, Arch: runtime.GOARCH, Progress: downloadProgress(s.say),
			},
		},
	}), nil
}

// downloadProgress tells of a download in steps of a tenth.
func downloadProgress(notify func(string)) func(download.Progress) {
	told := map[string]int64{}
	return func(p download.Progress) {
		if p.Total == 0 {
			return
		}
		if step := p.Done * 10 / p.Total; told[p.Name] != step+1 {
			told[p.Name] = step + 1
			notify(fmt.Sprintf("download %s: %d%% of %d MB", p.Name, step*10, p.Total>>20))
		}
	}
}

// stopTime limits how long processes may take to stop.
const stopTime = time.Minute

// stay watches over the processes until it is interrupted, and stops them then, also those of a run that failed.
func (o *upOptions) stay(ctx context.Context, rt run.Runtime, err error) error {
	l, ok := rt.(*local.Runtime)
	if !ok {
		return err
	}
	if err == nil {
		o.note("stays until you press Ctrl-C")
		err = l.Wait(ctx)
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return errors.Join(err, l.StopAll(stopping))
}
