package cmd

import (
	"os"
	"os/user"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kube"
	"github.com/kcpctl/kcpctl/internal/local"
	"github.com/kcpctl/kcpctl/internal/machine"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/ui"
	"github.com/kcpctl/kcpctl/internal/version"
)

// globalOptions are those of every command.
type globalOptions struct {
	*Env
	ui ui.Options
}

func (o *globalOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.ui.Color, "color", ui.ColorAuto, "colour: auto, always or never")
	f.BoolVar(&o.ui.Plain, "plain", false, "print as if to a file: no colour, nothing redrawn in place")
	allow(f, anywhere(), "color", "plain")
}

// setupOptions are those of commands that work on a setup.
type setupOptions struct {
	*globalOptions
	file       string
	kubeconfig string
	context    string
	namespace  string
	as         string
	asGroups   []string
	pkiDir     string
	// allowOtherCluster accepts another cluster than the one the setup was applied to.
	allowOtherCluster bool
	localOptions
}

func (o *setupOptions) addFlags(f *pflag.FlagSet) { o.addFlagsWith(f, "f") }

// addFlagsWith is for a command in which -f means something else.
func (o *setupOptions) addFlagsWith(f *pflag.FlagSet, fileShorthand string) {
	f.StringVarP(&o.file, "file", fileShorthand, "kcp.yaml", "setup file, - for stdin")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the setup's cluster, where the setup names one at most")
	f.StringVar(&o.context, "context", "", "context in it")
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace in the cluster")
	f.StringVar(&o.as, "as", "", "user to act as on the clusters")
	f.StringArrayVar(&o.asGroups, "as-group", nil, "group of the user of --as, may be repeated")
	f.StringVar(&o.pkiDir, "pki-dir", "", "folder that keeps certificates and keys, in place of the setup's PKI store")
	allow(f, anywhere(), "file", "kubeconfig", "context", "namespace", "as", "as-group")
	// A file of the user is for all setups, and each has certificates of its own.
	allow(f, []source{environment}, "pki-dir")
	o.addLocalFlags(f)
}

func (o *setupOptions) addOtherClusterFlag(f *pflag.FlagSet) {
	f.BoolVar(&o.allowOtherCluster, "allow-other-cluster", false, "accept another cluster than the one the setup was applied to")
}

// A session is a setup and what runs it.
type session struct {
	*setupOptions
	*voice
	File     *setup.File
	Topology *topology.Topology
	// layout is set when the setup runs on this machine.
	layout *local.Layout
	// keepHistory says that a run applies no other setup than the one that was applied last.
	keepHistory bool
}

// load reads the setup file and takes it apart. It touches no network.
func (o *setupOptions) load() (*session, error) {
	if o.as == "" && len(o.asGroups) > 0 {
		return nil, clierr.New(clierr.BadInput, "add --as USER", "--as-group is for a user of --as")
	}
	f, err := setup.Load(o.file, o.Streams.In)
	if err != nil {
		return nil, err
	}
	s := &session{setupOptions: o, voice: &voice{env: o.Env}, File: f}
	if o.local {
		return s, s.placeOnMachine()
	}
	if err := o.placeOnCluster(f); err != nil {
		return nil, err
	}
	s.Topology = topology.Build(f.Setup)
	return s, nil
}

// placeOnCluster lets flags say where the setup's one cluster is.
func (o *setupOptions) placeOnCluster(f *setup.File) error {
	if o.kubeconfig == "" && o.context == "" && o.namespace == "" {
		return nil
	}
	clusters := f.Setup.Spec.Clusters
	if len(clusters) > 1 {
		return clierr.New(clierr.BadInput, "say where they are in the file, under spec.clusters",
			"--kubeconfig, --context and --namespace work for a setup on one cluster, and %s has %d", f.Name, len(clusters))
	}
	for _, set := range []struct{ flag, field *string }{
		{&o.kubeconfig, &clusters[0].Kubeconfig}, {&o.context, &clusters[0].Context}, {&o.namespace, &clusters[0].Namespace},
	} {
		if *set.flag != "" {
			*set.field = *set.flag
		}
	}
	return nil
}

// directoryStore is the PKI store of a folder, if the flags or the setup want one; else nil.
func (s *session) directoryStore() pki.Store {
	dir := s.pkiDir
	if spec := s.File.Setup.Spec.PKI; dir == "" && spec.Store == "Directory" {
		dir = spec.Directory
		if !filepath.IsAbs(dir) && s.file != setup.Stdin {
			dir = filepath.Join(filepath.Dir(s.file), dir)
		}
	}
	if dir == "" {
		return nil
	}
	return pki.DirectoryStore(dir)
}

// open connects to what runs the setup. The caller closes the runtime.
func (s *session) open() (run.Runtime, error) {
	if s.local {
		return s.openLocal()
	}
	o := kube.Options{
		Version: version.Get().Version, Holder: holder(), Now: s.Now, Notify: s.say, StateDir: local.UserFolders(s.Getenv).State,
		As: s.as, AsGroups: s.asGroups,
		AllowOtherCluster: s.allowOtherCluster,
	}
	if st := s.directoryStore(); st != nil {
		o.Store = st
	}
	if s.Open != nil {
		return s.Open(s.Topology, o)
	}
	return kube.New(s.Topology, o)
}

// attach reads the setup file and connects to what runs it. The caller closes the runtime.
func (o *setupOptions) attach() (*session, run.Runtime, error) {
	s, err := o.load()
	if err != nil {
		return nil, nil, err
	}
	rt, err := s.open()
	return s, rt, err
}

func holder() kube.Holder {
	h := kube.Holder{PID: os.Getpid(), Machine: machine.ID()}
	h.Host, _ = os.Hostname()
	if u, err := user.Current(); err == nil {
		h.User = u.Username
	}
	return h
}
