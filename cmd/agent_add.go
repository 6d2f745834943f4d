package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
)

type agentAddOptions struct {
	env       *Env
	setup     setupFlags
	edit      applyFlags
	name      string
	cluster   string
	workspace string
	apiExport string
	publish   []string
	bind      []string
	secret    string
}

func newAgentAddCmd(env *Env) *cobra.Command {
	o := &agentAddOptions{env: env}
	c := &cobra.Command{
		Use:   "add NAME --workspace WORKSPACE --publish KIND.GROUP",
		Short: "Add an agent to the setup file and deploy it",
		Long: `Read how the cluster serves the kinds, add an agent that publishes them to the setup file, keeping its
comments, order and style, and deploy only that agent. The objects of workspaces get names that contain the name of their
logical cluster. Change spec.agents in the setup file for everything else, such as projections and mutations.

If the command is interrupted or the agent does not become ready, the agent stays in the file: run kcpctl up
to continue.`,
		Example: `  kcpctl agent add widgets --cluster services --workspace root:widgets --publish Widget.example.com
  kcpctl agent add widgets --workspace root:widgets --publish widgets.example.com/v1 --bind root:team-a --secret spec.secretName`,
		Args:              oneArg("agent name"),
		RunE:              withArg(&o.name, o.run),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	o.setup.addStarting(f)
	f.StringVar(&o.cluster, "cluster", "",
		"cluster whose APIs are published, and on which the agent runs (default: a namespace of its own on "+
			"the root shard's)")
	completeFlag(c, "cluster", o.setup.names(env, clusterNames))
	f.StringVar(&o.workspace, "workspace", "", "workspace of the APIExport, such as root:widgets")
	f.StringVar(&o.apiExport, "api-export", "", "name of the APIExport (default: the name of the agent)")
	f.StringArrayVar(&o.publish, "publish", nil,
		"kind to publish, as `KIND.GROUP[/VERSION]` (repeatable; default: all versions that are served)")
	f.StringArrayVar(&o.bind, "bind", nil,
		"workspace that binds the APIExport (repeatable; default: the workspace of the APIExport)")
	f.StringVar(&o.secret, "secret", "",
		"path of the field with the name of a Secret that users get, such as spec.secretName")
	o.edit.add(c, "the agent is ready", "the edit")
	return c
}

func (o *agentAddOptions) validate() error {
	o.cluster = placeName(o.cluster)
	if o.workspace == "" {
		return clierr.New(clierr.BadInput, "add --workspace root:"+o.name, "--workspace is required")
	}
	if len(o.publish) == 0 {
		return clierr.New(clierr.BadInput, "add --publish KIND.GROUP, such as Widget.example.com",
			"--publish is required")
	}
	for _, p := range o.publish {
		if _, _, _, ok := kindOf(p); !ok {
			return clierr.New(clierr.BadInput, "use KIND.GROUP or KIND.GROUP/VERSION, such as Widget.example.com/v1",
				"invalid kind %q", p)
		}
	}
	return o.edit.validateEdit(o.setup.file)
}

func (o *agentAddOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	before, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	edited, err := o.edited(ctx, before)
	if err != nil {
		return err
	}
	return addition{applyFlags: &o.edit, what: fmt.Sprintf("agent %q", o.name),
		explain: o.explain}.apply(ctx, before, edited)
}

// edited is the setup file with the agent. It fails before it reads a cluster if the setup has the agent already.
func (o *agentAddOptions) edited(ctx context.Context, s *session) (*setup.File, error) {
	if findAgent(s, o.name) != nil {
		return nil, clierr.New(clierr.BadInput,
			"choose another name, or change the agent in the file and run "+o.setup.command("up"),
			"%s already has an agent %q", s.file.Name, o.name)
	}
	file, err := o.besideKcp(s)
	if err != nil {
		return nil, err
	}
	a := v1alpha1.Agent{Name: o.name, Cluster: o.cluster, Workspace: o.workspace, APIExport: o.apiExport, Bind: o.bind}
	place, err := o.place(s, file)
	if err != nil {
		return nil, err
	}
	for _, text := range o.publish {
		p, err := o.published(ctx, s, place, text)
		if err != nil {
			return nil, err
		}
		a.PublishedResources = append(a.PublishedResources, p)
	}
	return file.AddAgent(a)
}

// besideKcp chooses the cluster of the agent if none is named: the cluster of the root shard, in a namespace without
// the keys of kcp.
func (o *agentAddOptions) besideKcp(s *session) (*setup.File, error) {
	if o.cluster != "" || s.flags.local.enabled || s.file.Setup.Spec.PKI.Store != v1alpha1.PKIStoreCluster {
		return s.file, nil
	}
	file, name, err := s.file.AddNamespace(topology.AgentsPlace, topology.AgentsNamespace(s.topology.Name))
	if err != nil {
		return nil, err
	}
	o.cluster = name
	return file, s.flags.placeOnCluster(file) // the kinds are read there
}

// place is the cluster of the agent.
func (o *agentAddOptions) place(s *session, file *setup.File) (v1alpha1.Cluster, error) {
	name := o.cluster
	if name == "" {
		name = s.file.Setup.Spec.RootShard.Cluster
	}
	for _, c := range file.Setup.Spec.Clusters {
		if c.Name == name {
			return c, nil
		}
	}
	return v1alpha1.Cluster{}, unknownName("cluster", name, clusterNames(s))
}

// published returns a PublishedResource for a kind as its cluster serves it. A workspace that takes the place of a
// cluster cannot be asked: kcp may not run yet.
func (o *agentAddOptions) published(ctx context.Context, s *session, place v1alpha1.Cluster,
	text string) (v1alpha1.PublishedResource, error) {
	kind, group, version, _ := kindOf(text)
	p := agent.Proposal{Group: group, Kind: kind, Plural: agent.Plural(kind), Namespaced: true, SecretPath: o.secret}
	if version != "" {
		p.Versions = []string{version}
	}
	if s.flags.local.enabled && place.Workspace != "" {
		return agent.Propose(p), nil
	}
	served, err := kube.Lookup(ctx, topology.Cluster{
		Name: place.Name, Context: place.Context, Kubeconfig: place.Kubeconfig, Namespace: place.Namespace,
		As: place.As, AsGroups: place.AsGroups,
	}, kube.Options{As: o.setup.as, AsGroups: o.setup.asGroups, Now: o.env.Now, Notify: o.env.note}, group, kind)
	if err != nil {
		return v1alpha1.PublishedResource{}, err
	}
	p.Kind = served.Kind
	p.Plural = served.Plural
	p.Namespaced = served.Namespaced
	switch {
	case o.secret != "" && !p.Namespaced:
		return v1alpha1.PublishedResource{}, clierr.New(clierr.BadInput,
			"omit --secret, and add the Secret with its namespace to spec.related in the file",
			"%s.%s has no namespace, so the namespace of its Secret is unknown", served.Kind, group)
	case version == "":
		p.Versions = served.Versions
	case !slices.Contains(served.Versions, version):
		return v1alpha1.PublishedResource{}, clierr.New(clierr.BadInput, oneOf(served.Versions),
			"cluster %s does not serve version %s of %s.%s", place.Name, version, served.Kind, group)
	}
	return agent.Propose(p), nil
}

// explain adds to an error how to continue, if the agent is in the setup file.
func (o *agentAddOptions) explain(err error) error {
	return clierr.Also(err, fmt.Sprintf("the agent is in %s: fix the cause and run %s; to remove it from "+
		"the file, run %s",
		o.setup.file, o.setup.command("up"), o.setup.command("agent remove "+o.name)))
}
