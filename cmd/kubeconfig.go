package cmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/proxy"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/runtime/local"
)

type kubeconfigOptions struct {
	env   *Env
	setup setupFlags

	// name is the kubeconfig of the setup file to print; the others describe a new one.
	name         string
	user         string
	groups       []string
	target       string
	workspace    string
	expiresIn    time.Duration
	clusterRoles []string
	// syncer is the physical cluster whose syncer the kubeconfig is for. lasts reports whether --expires-in was set.
	syncer string
	lasts  bool
	// oidc prints a kubeconfig for the users of an issuer.
	oidc   bool
	issuer string

	output      string
	merge       bool
	contextName string
	use         bool
	portForward bool
	command     []string
}

func newKubeconfigCmd(env *Env) *cobra.Command {
	o := &kubeconfigOptions{env: env}
	c := &cobra.Command{
		Use:   "kubeconfig [NAME] [-- COMMAND [ARG...]]",
		Short: "Print a kubeconfig for kcp, or run a command with it",
		Long: `Print a kubeconfig that is declared in the setup file: by default, the first one. With --user, mint a new
one, which is not stored. With --syncer, mint one for the syncer of a physical cluster with the syncMode
None, which can read and change only what is scheduled to this cluster.

A kubeconfig works until it expires, because kcp has no list of revoked certificates. The
bindings of --cluster-role remain after that, for the next kubeconfig of this user.

With --oidc, print a kubeconfig for all users of the OpenID Connect issuer of a front-proxy. It contains no
credentials: kubectl asks its plugin oidc-login (kubelogin) for a token, which opens a browser.

A shard finds a workspace by its path only if it holds the workspace and all workspaces above it. With
--target shard/NAME and any other workspace, specify the ID of its logical cluster as --workspace: it is
spec.cluster of the Workspace object, which a front-proxy shows.

Use --port-forward if clients cannot reach kcp's external hostname. kcpctl then serves a proxy on this
machine that reaches all hosts of the setup through the cluster, and sets proxy-url in the kubeconfig.
The kubeconfig works as long as kcpctl runs.

With a command after --, kcpctl writes the kubeconfig to a temporary file, runs the command with it, and
removes the file when the command ends. The file is in $XDG_RUNTIME_DIR, or else in the directory for
temporary files. The next such command removes files that were left behind by one that was killed.

--merge replaces only contexts of the same installation. A context of another installation is a
conflict, even if it has the same name: choose another name with --context-name.`,
		Example: `  kcpctl kubeconfig admin -o admin.kubeconfig
  kcpctl kubeconfig --user alice --group team-a --workspace root:team-a --expires-in 8h
  kcpctl kubeconfig --syncer edge -o kcp.kubeconfig
  kcpctl kubeconfig --oidc --workspace root:team-a -o team-a.kubeconfig
  kcpctl kubeconfig admin --port-forward -- kubectl get workspaces`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(c, args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
		ValidArgsFunction: completeArgs(1, o.setup.names(env, kubeconfigNames)),
	}
	f := c.Flags()
	o.setup.add(f)
	f.StringVar(&o.user, "user", "", "mint a kubeconfig for this user")
	f.StringSliceVar(&o.groups, "group", nil, "group of the user (repeatable)")
	f.StringVar(&o.target, "target", "",
		"front-proxy or shard to connect to, such as front-proxy/main, shard/alpha or shard/root (default: the first "+
			"front-proxy that accepts client certificates)")
	completeFlag(c, "target", o.setup.names(env, func(s *session) []string {
		if o.oidc {
			return loginIDs(s)
		}
		return targetIDs(s)
	}))
	f.StringVar(&o.workspace, "workspace", "",
		"path of the current workspace, or ID of its logical cluster (default: the one in the setup file, or root)")
	f.StringVar(&o.syncer, "syncer", "",
		"mint a kubeconfig for the syncer of this physical cluster, which you start with kcpctl syncer")
	completeFlag(c, "syncer", o.setup.names(env, manualClusters))
	addDuration(f, &o.expiresIn, "expires-in", 24*time.Hour,
		"validity of a minted kubeconfig (default with --syncer: spec.pki.certificateValidity)")
	f.StringSliceVar(&o.clusterRoles, "cluster-role", nil,
		"bind the user to this cluster role in the workspace (repeatable)")
	f.BoolVar(&o.oidc, "oidc", false,
		"print a kubeconfig with which users log in by OpenID Connect, without any credentials")
	f.StringVar(&o.issuer, "issuer", "",
		"URL of the issuer for --oidc, if the front-proxy has several (default: the first one)")
	f.StringVarP(&o.output, "output", "o", "", "write to `FILE`, with mode 0600, or to stdout with -")
	f.BoolVar(&o.merge, "merge", false, "merge the kubeconfig into $KUBECONFIG or ~/.kube/config")
	f.StringVar(&o.contextName, "context-name", "", "name of the merged context (default: the setup's name)")
	f.BoolVar(&o.use, "use", false, "make the merged context the current one")
	f.BoolVar(&o.portForward, "port-forward", false, "reach kcp through the cluster")
	requireFlag(f, "oidc", "issuer")
	requireFlag(f, "merge", "context-name", "use")
	requireFlag(f, "user", "group", "cluster-role")
	excludeFlag(f, "merge", "output")
	excludeFlag(f, "port-forward", "merge") // the kubeconfig works only while kcpctl runs
	// The setup file has the user of a syncer and its rights. Users that log in get their names and groups from the
	// issuer, and their roles by kubectl.
	excludeFlag(f, "syncer", "user", "oidc", "group", "cluster-role", "workspace")
	excludeFlag(f, "oidc", "user", "group", "cluster-role", "expires-in")
	return c
}

// splitCommand returns the arguments, and the command to run, which follows --.
func splitCommand(c *cobra.Command, args []string) (own, command []string) {
	if at := c.ArgsLenAtDash(); at >= 0 {
		return args[:at], args[at:]
	}
	return args, nil
}

func (o *kubeconfigOptions) complete(c *cobra.Command, args []string) error {
	args, o.command = splitCommand(c, args)
	if err := maxArgs(1)(c, args); err != nil {
		return err
	}
	if len(args) == 1 {
		o.name = args[0]
	}
	if err := checkOutputFile(o.output); err != nil {
		return err
	}
	if o.output == "-" {
		o.output = ""
	}
	o.lasts = c.Flags().Changed("expires-in")
	minted := o.user != "" || o.syncer != ""
	switch {
	case (minted || o.oidc) && o.name != "":
		return clierr.New(clierr.BadInput, "use one of them",
			"NAME prints a kubeconfig of the setup file, and --user, --syncer and --oidc make a new one: they cannot "+
				"be used together")
	case !minted && o.lasts, !minted && !o.oidc && o.target != "":
		return clierr.New(clierr.BadInput, "add --user, or change the kubeconfig in the setup file",
			"--expires-in and --target cannot be used with a kubeconfig of the setup file")
	case len(o.command) > 0 && (o.merge || o.output != ""):
		return clierr.New(clierr.BadInput, "omit --merge and --output",
			"--merge and --output cannot be used with a command, which gets a temporary kubeconfig")
	case o.expiresIn <= 0:
		return clierr.New(clierr.BadInput, "use a duration such as 8h", "--expires-in must be positive")
	}
	return nil
}

func (o *kubeconfigOptions) run(ctx context.Context) error {
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	if o.oidc {
		return o.runLogin(ctx, s)
	}
	if _, _, err := o.access(s); err != nil {
		return err
	}
	connect := s.connectStore
	if o.portForward || len(o.clusterRoles) > 0 {
		connect = s.connect
	}
	if err := connect(ctx); err != nil {
		return err
	}
	defer s.close()
	return o.handOver(ctx, s)
}

// handOver makes the kubeconfig with a session that is connected, and delivers it.
func (o *kubeconfigOptions) handOver(ctx context.Context, s *session) error {
	access, declared, err := o.access(s) // the address may be one that the cluster assigns
	if err != nil {
		return err
	}
	if s.topology.Component(access.Target).Assignment.Pending() {
		return deploy.RequireAddresses(s.topology)
	}
	o.notePath(access)
	if _, err := s.leaveOut(ctx); err != nil {
		return err
	}
	state, err := s.loadPKI(ctx)
	if err != nil {
		return err
	}
	if o.syncer != "" {
		access.User = state.User(s.topology.Component(topology.IDOf(topology.Physical, o.syncer)))
	}
	pair, err := o.certificate(s, state, access, declared)
	if err != nil {
		return err
	}
	if len(o.clusterRoles) > 0 {
		if err := o.bindRoles(ctx, s, state); err != nil {
			return err
		}
	}
	return o.deliver(ctx, s, s.owner(state), kubeconfig.ForUser(access, state.CAs[topology.ServerCA].Trusted(), pair))
}

// deliver writes the kubeconfig to where the flags want it, or runs the command with it.
func (o *kubeconfigOptions) deliver(ctx context.Context, s *session, owner kubeconfig.Owner, content []byte) error {
	switch {
	case o.portForward:
		return o.forward(ctx, s, owner, content)
	case len(o.command) > 0:
		return o.runCommand(ctx, content)
	}
	return o.write(ctx, owner, content)
}

// access returns the access that the kubeconfig gives, and the component if the setup file declares it.
func (o *kubeconfigOptions) access(s *session) (topology.Access, *topology.Component, error) {
	switch {
	case o.syncer != "":
		a, err := o.syncerAccess(s)
		return a, nil, err
	case o.user != "":
		a, err := o.newAccess(s)
		return a, nil, err
	}
	for _, c := range s.topology.OfKind(topology.Kubeconfig) {
		if o.name == "" || c.Name == o.name {
			a := *c.Access
			a.Workspace = cmp.Or(o.workspace, a.Workspace)
			return a, c, nil
		}
	}
	return topology.Access{}, nil, clierr.New(clierr.BadInput, oneOf(kubeconfigNames(s))+", or mint one with --user",
		"%s declares no kubeconfig %q", s.file.Name, o.name)
}

// mintedGroup is the group to which the roles of a minted kubeconfig are bound.
func mintedGroup(user string) string { return "kcpctl:user:" + user }

// certificate is the certificate of the declared kubeconfig, or a new one.
func (o *kubeconfigOptions) certificate(
	s *session, state *pki.State, a topology.Access, declared *topology.Component,
) (pki.Pair, error) {
	if declared == nil {
		return o.mint(s, state, a)
	}
	for _, cert := range pki.CertsOf(s.topology, declared) {
		if pair, ok := state.Leaves[cert.Key()]; ok {
			return pair, nil
		}
	}
	return pki.Pair{}, clierr.New(clierr.Failed, "run "+o.setup.command("up"),
		"the certificate of the kubeconfig %q has not been issued yet", declared.Name)
}

// mint makes a certificate, and notes if it ends earlier than --expires-in says: with its authority.
func (o *kubeconfigOptions) mint(s *session, state *pki.State, a topology.Access) (pki.Pair, error) {
	now := o.env.Now()
	pair, err := pki.Mint(state, pki.MintSpec{
		CN: a.User, Orgs: a.Groups, Algorithm: s.file.Setup.Spec.PKI.KeyAlgorithm, Validity: o.expiresIn,
	}, now)
	if err != nil {
		return pki.Pair{}, err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err == nil && cert.Leaf.NotAfter.Before(now.Add(o.expiresIn).Truncate(time.Second)) {
		o.env.note(fmt.Sprintf("the kubeconfig is valid until %s, when the client CA expires; to renew the CA, run %s",
			cert.Leaf.NotAfter.UTC().Format(time.RFC3339), o.setup.command("certs rotate-ca client")))
	}
	return pair, err
}

func (o *kubeconfigOptions) bindRoles(ctx context.Context, s *session, state *pki.State) error {
	client, err := kcp.Connect(s.runtime, s.topology.OwnFrontProxy(), state, o.env.Now())
	if err != nil {
		return err
	}
	workspace := cmp.Or(o.workspace, topology.RootShardName)
	err = client.BindRoles(ctx, workspace, "kcpctl-user-"+o.user, mintedGroup(o.user), o.clusterRoles,
		render.WorkspaceLabels(s.topology.Name, state.Installation.ID))
	if apierrors.IsForbidden(err) { // the answer of kcp for a workspace that does not exist
		return clierr.New(clierr.Failed,
			"check --workspace: kubectl get workspaces lists the workspaces in the current one",
			"workspace %s does not exist, or is not ready: %w", workspace, err)
	}
	return err
}

func (o *kubeconfigOptions) write(ctx context.Context, owner kubeconfig.Owner, content []byte) error {
	switch {
	case o.merge:
		return o.mergeInto(ctx, owner, content)
	case o.output != "":
		if err := o.replaceable(); err != nil {
			return err
		}
		if err := kubeconfig.WriteFile(o.output, content); err != nil {
			return notWritable(err, "name a file that you can write with -o")
		}
		fmt.Fprintf(o.env.Streams.Err, "kubeconfig written. Use it with: export KUBECONFIG=%s\n", quote(o.output))
		return nil
	}
	_, err := o.env.Streams.Out.Write(content)
	return err
}

// replaceable refuses to replace a file that has other contexts, such as the kubeconfig of the user.
func (o *kubeconfigOptions) replaceable() error {
	others, err := kubeconfig.Others(o.output)
	if err != nil {
		return clierr.New(clierr.BadInput, "name another file with -o", "write kubeconfig: %w", err)
	}
	if len(others) == 0 {
		return nil
	}
	return clierr.New(clierr.BadInput,
		"add to it with KUBECONFIG="+quote(o.output)+" and --merge, or name another file with -o",
		"%s has other contexts, which would be lost: %s", o.output, gather.Few(others, 3, ", "))
}

func (o *kubeconfigOptions) mergeInto(ctx context.Context, owner kubeconfig.Owner, content []byte) error {
	path := userKubeconfig(o.env)
	if path == "" {
		return clierr.New(clierr.Failed, "set KUBECONFIG or HOME, or write a file with -o",
			"cannot find your kubeconfig: $KUBECONFIG and $HOME are not set")
	}
	name, err := kubeconfig.Merge(ctx, path, content, kubeconfig.MergeOptions{
		Owner: owner, ContextName: cmp.Or(o.contextName, owner.Setup), Use: o.use,
	})
	if err != nil {
		return notWritable(err, "set KUBECONFIG to a file that you can write, or write another file with -o")
	}
	fmt.Fprintf(o.env.Streams.Err, "merged into %s. Use it with: kubectl --context %s get workspaces\n",
		path, quote(name))
	return nil
}

// notWritable adds a next step to the error of a file that the user may not write, and returns others unchanged.
func notWritable(err error, hint string) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrNotExist) {
		return &clierr.Error{Err: err, Code: clierr.Failed, Hint: hint}
	}
	return err
}

// userKubeconfig is the file that kubectl writes to: the first one in $KUBECONFIG, or ~/.kube/config. It is empty
// without either variable.
func userKubeconfig(env *Env) string {
	for _, path := range filepath.SplitList(env.Getenv("KUBECONFIG")) {
		if path != "" {
			return path
		}
	}
	if home := env.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".kube", "config")
	}
	return ""
}

// forward serves a proxy to the setup's components while the command runs, or until it is interrupted.
func (o *kubeconfigOptions) forward(ctx context.Context, s *session, owner kubeconfig.Owner, content []byte) error {
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
	srv := proxy.New(s.topology, s.runtime, func(err error) { o.env.note(err.Error()) })
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return srv.Serve(ctx, l) })
	g.Go(func() error {
		defer stop()
		if len(o.command) > 0 {
			return o.runCommand(ctx, content)
		}
		if err := o.write(ctx, owner, content); err != nil {
			return err
		}
		o.env.note("the kubeconfig works until you press Ctrl-C")
		<-ctx.Done()
		return nil
	})
	return g.Wait()
}

// runCommand runs the command with KUBECONFIG set, and fails with its exit code.
func (o *kubeconfigOptions) runCommand(ctx context.Context, content []byte) error {
	dir, remove, err := local.PrivateDir(o.env.Getenv)
	if err != nil {
		return fmt.Errorf("create a directory for the kubeconfig: %w", err)
	}
	defer remove()
	file := filepath.Join(dir, "kubeconfig")
	if err := kubeconfig.WriteFile(file, content); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, o.command[0], o.command[1:]...)
	c.Env = append(os.Environ(), "KUBECONFIG="+file)
	c.Stdin, c.Stdout, c.Stderr = o.env.Streams.In, o.env.Streams.Out.Writer, o.env.Streams.Err.Writer
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
