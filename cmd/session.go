package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/machine"
	"github.com/kcpctl/kcpctl/internal/kit/version"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/facts"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/physical"
	"github.com/kcpctl/kcpctl/internal/runtime/local"
	"github.com/kcpctl/kcpctl/internal/runtime/workspace"
)

// session is the setup that a command works on: its file, its topology and, once connected, the runtime that runs it.
type session struct {
	env      *Env
	flags    *setupFlags
	reporter *reporter
	file     *setup.File
	topology *topology.Topology
	// directory is the store of the PKI if a directory keeps it, else nil.
	directory pki.Store
	// layout is the setup's directory and ports on this machine. It is nil without --local.
	layout *local.Layout
	// addresses are those that clusters have assigned to components. Connect reads them.
	addresses topology.Addresses
	// written means that an edit with the content of file is in the setup file.
	written bool
	// removed are physical clusters that the run removes.
	removed []v1alpha1.WorkloadCluster
	// image replaces the image of kcpctl that the setup uses. Empty: nothing.
	image string
	// runtime is nil until connect.
	runtime run.Runtime
}

// openSetup loads a setup and connects to what runs it. The caller closes the session.
func openSetup(ctx context.Context, env *Env, flags *setupFlags) (*session, error) {
	s, err := loadSetup(env, flags)
	if err != nil {
		return nil, err
	}
	return s, s.connect(ctx)
}

// opened returns the function of a command that works on a setup that runs.
func opened(env *Env, flags *setupFlags, run func(context.Context, *session) error) func(context.Context) error {
	return func(ctx context.Context) error {
		s, err := openSetup(ctx, env, flags)
		if err != nil {
			return err
		}
		defer s.close()
		return run(ctx, s)
	}
}

// loadSetup reads the setup file and builds its topology. It uses no network.
func loadSetup(env *Env, flags *setupFlags) (*session, error) {
	flags.program = env.program()
	if env.Streams.OutputIs(flags.file) {
		return nil, clierr.New(clierr.BadInput,
			"restore the file, because the shell has emptied it; then print to another file, or use kcpctl history "+
				"--revision N --write, which replaces it safely",
			"the output goes to %s, which is the setup file that this command reads", flags.file)
	}
	f, err := setup.Load(flags.file, env.Streams.In)
	if err != nil {
		return nil, err
	}
	env.events.describe(f.Setup)
	s, err := (&session{env: env, flags: flags, reporter: &reporter{env: env}}).with(f)
	env.session = s
	return s, err
}

// with returns a session for another content of the setup file, such as an edited one. It is not connected.
func (s *session) with(f *setup.File) (*session, error) {
	next := *s
	next.runtime, next.directory = nil, s.flags.pkiDirectory(f)
	if err := next.flags.placeOnCluster(f); err != nil {
		return nil, err
	}
	return &next, next.use(f)
}

// use makes a file the setup of the session, and builds its topology.
func (s *session) use(f *setup.File) error {
	s.file = f
	if s.flags.local.enabled {
		return s.useLocal()
	}
	s.topology = topology.BuildAt(f.Setup, s.addresses)
	return nil
}

// connect opens the runtime, with the addresses that clusters have assigned to components.
func (s *session) connect(ctx context.Context) error {
	if err := s.open(); err != nil || len(s.topology.Assigned()) == 0 {
		return err
	}
	known, err := deploy.KnownAddresses(ctx, s.runtime, s.topology)
	if err != nil {
		return err
	}
	return s.at(known)
}

// at builds the topology with the addresses that clusters have assigned to components, and opens the runtime again.
func (s *session) at(known topology.Addresses) error {
	s.close()
	s.addresses = known
	if err := s.use(s.file); err != nil {
		return err
	}
	return s.open()
}

// open opens the runtime.
func (s *session) open() error {
	if s.flags.local.enabled {
		return s.connectLocal()
	}
	open := s.env.Open
	if open == nil {
		open = func(t *topology.Topology, o kube.Options) (run.Runtime, error) { return kube.New(t, o) }
	}
	image := setup.KcpctlImage(&s.file.Setup.Spec)
	if s.image != "" {
		image = setup.WithName(image, s.image)
	}
	o := kube.Options{
		Image:   image,
		Version: version.Get().Version, Holder: holder(), Command: s.env.Command, Now: s.env.Now,
		Notify:   s.reporter.note,
		StateDir: local.UserDirs(s.env.Getenv).State,
		As:       s.flags.as, AsGroups: s.flags.asGroups, AllowOtherCluster: s.flags.allowOtherCluster,
		ForgetClusters: s.flags.forgetClusters, AllowLostRecord: s.flags.allowLostRecord,
	}
	if s.directory != nil {
		o.Store = s.directory
	}
	rt, err := open(s.topology, o)
	if err == nil {
		s.wrap(rt)
	}
	return s.orLocal(err)
}

// wrap adds objects in workspaces and on physical clusters to a runtime.
func (s *session) wrap(rt run.Runtime) {
	wrapped := workspace.Wrap(rt, s.topology, s.openPhysical, s.env.Now, s.reporter.note)
	wrapped.Reach(s.removed...)
	s.runtime = wrapped
	s.env.events.ofInstallation(wrapped.Installation)
}

// physicalCluster is a cluster that is not one of the setup's own, with the facts about it.
type physicalCluster struct {
	*physical.Client
	*facts.Cluster
}

// openPhysical returns a client for a cluster that is not one of the setup's own.
func (s *session) openPhysical(c topology.Cluster, server string) (workspace.Physical, error) {
	client, err := s.physicalClient(c, server)
	if err != nil {
		return nil, err
	}
	return physicalCluster{client, facts.New(context.Background(), client.Cluster(), s.topology, s.env.Now)}, nil
}

// physicalClient returns a client for a cluster. It sends no request.
func (s *session) physicalClient(c topology.Cluster, server string) (*physical.Client, error) {
	return physical.New(c, server, cluster.Options{
		Now: s.env.Now, Notify: func(format string, args ...any) { s.reporter.note(fmt.Sprintf(format, args...)) },
	})
}

// leaveOut excludes the clusters that cannot be reached, for a command that only reads, and notes them. It fails if the
// cluster of the root shard is one of them.
func (s *session) leaveOut(ctx context.Context) ([]plan.Unreachable, error) {
	if s.runtime == nil {
		return nil, nil // a directory has all that the command reads
	}
	lost := s.runtime.Unreachable(ctx)
	if home, is := plan.UnreachableIn(lost, s.topology.Home.Name); is {
		return nil, home.Err
	}
	s.runtime.LeaveOut(lost)
	next := gather.Once() // several clusters can have one API server
	for _, l := range lost {
		s.reporter.note(fmt.Sprintf("cluster %s cannot be reached, so its objects are unknown: %s",
			l.Cluster, withNext(firstLine(l.Err.Error()), next(clierr.Hint(l.Err)))))
	}
	return lost, nil
}

// withNext adds the next step to a message, if there is one.
func withNext(message, next string) string {
	if next == "" {
		return message
	}
	return message + "; " + next
}

// connectToApply opens the runtime of a setup that the command is about to start or change: on this machine, its
// ports are chosen first.
func (s *session) connectToApply(ctx context.Context) error {
	if err := s.claimPorts(ctx); err != nil {
		return err
	}
	return s.connect(ctx)
}

func (s *session) close() {
	if s.runtime != nil {
		_ = s.runtime.Close()
	}
}

func holder() kube.Holder {
	h := kube.Holder{PID: os.Getpid(), Machine: machine.ID()}
	h.Host, _ = os.Hostname()
	if u, err := user.Current(); err == nil {
		h.User = u.Username
	}
	return h
}

// connectStore connects, unless a directory has the PKI and clusters assign no addresses.
func (s *session) connectStore(ctx context.Context) error {
	if s.directory != nil && !s.flags.local.enabled && len(s.topology.Assigned()) == 0 {
		return nil
	}
	return s.connect(ctx)
}

// store is the store of the setup's PKI.
func (s *session) store() pki.Store {
	if s.runtime != nil {
		return s.runtime.Store()
	}
	return s.directory
}

// loadPKI returns the setup's PKI, which the first up creates.
func (s *session) loadPKI(ctx context.Context) (*pki.State, error) {
	state, err := s.store().Load(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.havePKI(ctx, state); err != nil {
		return nil, err
	}
	known := &record.Record{Installation: state.Installation.ID}
	return state, known.CheckInstallation(s.file.Setup.Metadata.Installation, s.store().String())
}

// havePKI fails if the PKI is empty. The record of the installation, where the session has one, knows if there was one.
func (s *session) havePKI(ctx context.Context, state *pki.State) error {
	if len(state.CAs) > 0 {
		return nil
	}
	missing := clierr.New(clierr.Failed, "run "+s.flags.command("up")+" first",
		"kcp %q has no certificates yet: none found in %s", s.topology.Name, s.store())
	if s.runtime == nil {
		return s.orLocal(missing)
	}
	known, err := s.runtime.Record(ctx)
	if err == nil {
		err = known.CheckAuthorities(state, s.store().String())
	}
	if err != nil {
		return err
	}
	return s.orLocal(missing)
}

// rootShard connects to the root shard.
func (s *session) rootShard(ctx context.Context) (*kcp.Client, error) {
	s.runtime.LeaveOut(s.runtime.Unreachable(ctx)) // it is on none of them, or does not answer
	state, err := s.loadPKI(ctx)
	if err != nil {
		return nil, err
	}
	return kcp.Connect(s.runtime, s.topology.Root(), state, s.env.Now())
}

// owner is the installation in whose name contexts of kubeconfigs are written.
func (s *session) owner(state *pki.State) kubeconfig.Owner {
	return kubeconfig.Owner{Setup: s.topology.Name, Installation: state.Installation.ID, Local: s.topology.Local()}
}

// upRun is a run of up as part of a command.
type upRun struct {
	header  string
	wait    waitFlags
	options deploy.UpOptions
	// keepHistory adds no revision to the history: the setup file is the one that was applied last.
	keepHistory bool
}

// of returns the run for a setup.
func (r upRun) of(s *session) (*deploy.Up, error) {
	var revision, file []byte
	if !r.keepHistory {
		var err error
		file = s.file.Data
		if revision, err = setup.Marshal(s.file.Setup); err != nil {
			return nil, err
		}
	}
	r.options.SkipCanary = r.wait.skipCanary
	r.options.Timeout = r.wait.timeout
	r.options.Parallel = int(r.wait.parallel)
	return &deploy.Up{
		Topology: s.topology, Runtime: s.runtime, Setup: revision, File: file,
		Observe: s.reporter.observe, Now: s.env.Now,
		Options: r.options,
	}, nil
}

// run applies the setup, and shows the progress.
func (r upRun) run(ctx context.Context, s *session) (*deploy.Result, error) {
	end := s.reporter.begin(ctx, r.header)
	res, err := r.exposeAndRun(ctx, s)
	end()
	if r.wait.output != outputJSON && res != nil && res.Plan != nil && len(res.Plan.Conflicts) > 0 {
		ui.PrintConflicts(s.env.Streams.Err, res.Plan.Conflicts)
	}
	return res, err
}

func (r upRun) exposeAndRun(ctx context.Context, s *session) (*deploy.Result, error) {
	if err := r.expose(ctx, s); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		up, err := r.of(s)
		if err != nil {
			return nil, err
		}
		res, err := up.Run(ctx)
		if err == nil || attempt == portAttempts {
			return res, err
		}
		if again, failed := s.chosenAgain(ctx); failed != nil || !again {
			return res, errors.Join(err, failed)
		}
	}
}

// expose gets the addresses that a run needs from the clusters.
func (r upRun) expose(ctx context.Context, s *session) error {
	if len(s.topology.Assigned()) == 0 {
		return nil
	}
	up, err := r.of(s)
	if err != nil {
		return err
	}
	known, err := up.Expose(ctx)
	if err != nil {
		return err
	}
	return s.at(known)
}

// portAttempts is how often a run chooses ports on this machine that other processes take before it has started
// anything.
const portAttempts = 3
