package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

type kubeconfigOptions struct {
	setupOptions
	user         string
	groups       []string
	target       string
	workspace    string
	expiresIn    time.Duration
	clusterRoles []string

	output      string
	merge       bool
	contextName string
	use         bool
	portForward bool

	name    string
	command []string
}

func newKubeconfigCmd(g *globalOptions) *cobra.Command {
	o := &kubeconfigOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "kubeconfig [NAME] [-- COMMAND [ARG...]]",
		Short: "Print a kubeconfig for kcp, or run a command with it",
		Long: `Kubeconfig prints a kubeconfig that the setup declares, the first one if no name is given. With --user it mints one that
nothing keeps.

Where clients cannot reach kcp's external hostname, --port-forward reaches it through the cluster: kcpctl serves a proxy on
this machine that knows all hosts of the setup, the kubeconfig names it in proxy-url, and it works as long as kcpctl runs.
With a command after --, kcpctl runs it with that kubeconfig and ends with it. The file is in $XDG_RUNTIME_DIR, or else with
temporary files, and is removed at the end; the next such command removes what one that was killed has left.

--merge replaces entries of the same installation only. Those of another one, even of the same name, are a conflict, for which
--context-name chooses other names.`,
		Example: `  kcpctl kubeconfig admin -o admin.kubeconfig
  kcpctl kubeconfig --user alice --group team-a --workspace root:team-a --expires-in 8h
  kcpctl kubeconfig admin --port-forward -- kubectl get workspaces`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(c, args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.addFlags(f)
	f.StringVar(&o.user, "user", "", "mint a kubeconfig for this user")
	f.StringSliceVar(&o.groups, "group", nil, "group of the user, may be repeated")
	f.StringVar(&o.target, "target", "", "front-proxy or shard, such as front-proxy/main or shard/alpha (default the first front-proxy)")
	f.StringVar(&o.workspace, "workspace", "", "path of the current workspace (default root)")
	f.DurationVar(&o.expiresIn, "expires-in", 24*time.Hour, "how long a minted kubeconfig is valid")
	f.StringSliceVar(&o.clusterRoles, "cluster-role", nil, "bind this cluster role to the user in the workspace, may be repeated")
	f.StringVarP(&o.output, "output", "o", "", "file to write, with mode 0600")
	f.BoolVar(&o.merge, "merge", false, "merge it into $KUBECONFIG or ~/.kube/config")
	f.StringVar(&o.contextName, "context-name", "", "name of the merged context (default the setup's name)")
	f.BoolVar(&o.use, "use", false, "make the merged context the current one")
	f.BoolVar(&o.portForward, "port-forward", false, "reach kcp through the cluster")
	c.ValidArgsFunction = completeArgs(1, o.fromFile(theKubeconfigs))
	completeFlag(c, "target", o.fromFile(theTargets))
	return c
}

func (o *kubeconfigOptions) complete(c *cobra.Command, args []string) error {
	if at := c.ArgsLenAtDash(); at >= 0 {
		args, o.command = args[:at], args[at:]
	}
	if err := maxArgs(1)(c, args); err != nil {
		return err
	}
	if len(args) == 1 {
		o.name = args[0]
	}
	var minting []string
	for _, f := range []string{"group", "target", "workspace", "expires-in", "cluster-role"} {
		if c.Flags().Changed(f) {
			minting = append(minting, "--"+f)
		}
	}
	switch {
	case o.user != "" && o.name != "":
		return clierr.New(clierr.BadInput, "give one of them", "a name asks for a declared kubeconfig, --user for a new one")
	case o.user == "" && len(minting) > 0:
		return clierr.New(clierr.BadInput, "add --user, or change the declaration in the setup file",
			"%s: only for a kubeconfig that is minted with --user", strings.Join(minting, ", "))
	case o.merge && o.portForward:
		return clierr.New(clierr.BadInput, "write it to a file of its own with -o", "the kubeconfig of --port-forward ends with the command; it is not worth merging")
	case o.merge && o.output != "":
		return clierr.New(clierr.BadInput, "give one of them", "--merge and --output are two places for one kubeconfig")
	case len(o.command) > 0 && (o.merge || o.output != ""):
		return clierr.New(clierr.BadInput, "leave out --merge and --output", "a command is run with a kubeconfig of its own")
	case o.expiresIn <= 0:
		return clierr.New(clierr.BadInput, "use a duration such as 8h", "--expires-in must be positive")
	}
	return nil
}

func (o *kubeconfigOptions) run(ctx context.Context) error {
	s, err := o.load()
	if err != nil {
		return err
	}
	access, declared, err := o.access(s)
	if err != nil {
		return err
	}
	store, rt, err := o.connect(s)
	if err != nil {
		return err
	}
	if rt != nil {
		defer rt.Close()
	}
	state, err := store.Load(ctx)
	if err != nil {
		return err
	}
	if len(state.CAs) == 0 {
		return clierr.New(clierr.Failed, "run kcpctl up first"+o.flagsForTip(), "kcp %q has no certificates yet: %s does not exist", s.Topology.Name, store)
	}
	pair, err := o.certificate(s, state, access, declared)
	if err != nil {
		return err
	}
	if len(o.clusterRoles) > 0 {
		if err := o.bind(ctx, s, rt, state); err != nil {
			return err
		}
	}
	content := kubeconfig.ForUser(access, state.CAs[pki.ServerCA].Trusted(), pair)
	if o.portForward {
		return o.forward(ctx, s, rt, s.owner(state), content)
	}
	if len(o.command) > 0 {
		return o.runCommand(ctx, content)
	}
	return o.deliver(ctx, s.owner(state), content)
}

// connect returns where the PKI is kept, and the runtime where something needs it.
func (o *kubeconfigOptions) connect(s *session) (pki.Store, run.Runtime, error) {
	if st := s.directoryStore(); st != nil && !o.portForward && len(o.clusterRoles) == 0 {
		return st, nil, nil
	}
	rt, err := s.open()
	if err != nil {
		return nil, nil, err
	}
	return rt.Store(), rt, nil
}

// access finds the declared kubeconfig, or describes the one to mint.
func (o *kubeconfigOptions) access(s *session) (topology.Access, *topology.Component, error) {
	declared := s.Topology.OfKind(topology.Kubeconfig)
	if o.user == "" {
		var names []string
		for _, c := range declared {
			if o.name == "" || c.Name == o.name {
				return *c.Access, c, nil
			}
			names = append(names, c.Name)
		}
		return topology.Access{}, nil, clierr.New(clierr.BadInput, oneOf(names)+", or mint one with --user",
			"%s declares no kubeconfig %q", s.File.Name, o.name)
	}
	k := v1alpha1.Kubeconfig{
		Name: o.user, User: o.user, Groups: o.groups, Workspace: o.workspace, ClusterRoles: o.clusterRoles,
		Validity: metav1.Duration{Duration: o.expiresIn},
	}
	if k.Workspace == "" {
		k.Workspace = topology.RootShardName
	}
	if len(o.clusterRoles) > 0 {
		k.Groups = append(slices.Clone(k.Groups), mintedGroup(o.user))
	}
	targets := s.Topology.OfKind(topology.FrontProxy, topology.RootShard, topology.Shard)
	var names []string
	for _, c := range targets {
		if o.target != "" && o.target != string(c.ID()) {
			names = append(names, string(c.ID()))
			continue
		}
		switch {
		case o.target == "":
			k.Target.FrontProxy = s.Topology.OfKind(topology.FrontProxy)[0].Name
		case c.Kind == topology.FrontProxy:
			k.Target.FrontProxy = c.Name
		default:
			k.Target.Shard = c.ShardName()
		}
		return s.Topology.Access(k), nil, nil
	}
	return topology.Access{}, nil, clierr.New(clierr.BadInput, oneOf(names), "there is no target %q", o.target)
}

// mintedGroup is the group to which the roles of a minted kubeconfig are bound.
func mintedGroup(user string) string { return "kcpctl:user:" + user }

// certificate is the declared kubeconfig's, or a new one.
func (o *kubeconfigOptions) certificate(s *session, state *pki.State, a topology.Access, c *topology.Component) (pki.Pair, error) {
	if c == nil {
		return pki.Mint(state, pki.MintSpec{
			CN: a.User, Orgs: a.Groups, Algorithm: s.File.Setup.Spec.PKI.KeyAlgorithm, Validity: o.expiresIn,
		}, o.Now())
	}
	for _, cert := range pki.CertsOf(s.Topology, c) {
		if pair, ok := state.Leaves[cert.Key()]; ok {
			return pair, nil
		}
	}
	return pki.Pair{}, clierr.New(clierr.Failed, "run kcpctl up"+o.flagsForTip(), "the certificate of kubeconfig %q was not issued yet", c.Name)
}

// bind gives the user of a minted kubeconfig its roles.
func (o *kubeconfigOptions) bind(ctx context.Context, s *session, rt run.Runtime, state *pki.State) error {
	client, err := run.Connect(rt, s.Topology.OfKind(topology.FrontProxy)[0], state, o.Now())
	if err != nil {
		return err
	}
	workspace := o.workspace
	if workspace == "" {
		workspace = topology.RootShardName
	}
	return client.BindRoles(ctx, workspace, "kcpctl-user-"+o.user, mintedGroup(o.user), o.clusterRoles)
}

// deliver puts the kubeconfig where it was asked for.
func (o *kubeconfigOptions) deliver(ctx context.Context, owner kubeconfig.Owner, content []byte) error {
	switch {
	case o.merge:
		return o.mergeInto(ctx, owner, content)
	case o.output != "":
		if err := kubeconfig.WriteFile(o.output, content); err != nil {
			return err
		}
		fmt.Fprintf(o.Streams.Err, "kubeconfig written. Use it with: export KUBECONFIG=%s\n", quote(o.output))
		return nil
	}
	_, err := o.Streams.Out.Write(content)
	return err
}
