package cmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// The values of --etcd.
const (
	etcdManaged  = "managed"
	etcdEmbedded = "embedded"
	etcdExternal = "external"
)

var etcdTypes = []string{etcdManaged, etcdEmbedded, etcdExternal}

type addShardOptions struct {
	env       *Env
	setup     setupFlags
	edit      applyFlags
	name      string
	cluster   string
	url       string
	expose    string
	replicas  v1alpha1.Replicas
	etcd      string
	endpoints []string
	tlsSecret string
	labels    map[string]string
}

func exposeTypes() []string {
	return mapped(v1alpha1.ExposeTypes, func(t v1alpha1.ExposeType) string { return string(t) })
}

func newAddShardCmd(env *Env) *cobra.Command {
	o := &addShardOptions{env: env}
	c := &cobra.Command{
		Use:   "add-shard NAME",
		Short: "Add a shard to the setup file and deploy it",
		Long: `Add a shard to the setup file, keeping its comments, order and style, and deploy only that shard: its
etcd, its certificates and its server. Then wait until kcp has registered the shard and a
workspace on it becomes Ready. No other component is changed or restarted.

If the command is interrupted or the shard does not become ready, the shard stays in the file: rerun the
command, or run kcpctl up, to continue.`,
		Example: `  kcpctl add-shard gamma
  kcpctl add-shard gamma --cluster us --url https://gamma.example.com:6443 --expose LoadBalancer --dry-run`,
		Args:              oneArg("shard name"),
		RunE:              withArg(&o.name, o.run),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	o.setup.addStarting(f)
	f.StringVar(&o.cluster, "cluster", "", "cluster to place the shard on (default: the root shard's)")
	completeFlag(c, "cluster", o.setup.names(env, clusterNames))
	f.StringVar(&o.url, "url", "",
		"base URL, at which other shards and front-proxies reach the shard (default: its Service)")
	f.StringVar(&o.expose, "expose", "",
		"how the shard is reached at its URL: "+either(exposeTypes())+" (default: ClusterIP)")
	completeFlag(c, "expose", fixed(exposeTypes()...))
	f.Var(&o.replicas, "replicas", "number of replicas, or null (default: spec.defaults.replicas)")
	f.StringVar(&o.etcd, "etcd", "", "etcd to use: "+either(etcdTypes)+" (default: spec.etcd)")
	completeFlag(c, "etcd", fixed(etcdTypes...))
	f.StringSliceVar(&o.endpoints, "etcd-endpoint", nil, "URL of the external etcd (repeatable)")
	f.StringVar(&o.tlsSecret, "etcd-tls-secret", "", "Secret with the client credentials of the external etcd")
	f.StringToStringVar(&o.labels, "label", nil,
		"label of the shard in kcp, as `KEY=VALUE`; workspaces select shards by labels (repeatable)")
	f.Lookup("label").DefValue = "" // not []
	o.edit.add(c, "the shard is ready", "the edit")
	return c
}

func (o *addShardOptions) validate() error {
	o.cluster = placeName(o.cluster)
	switch {
	case o.etcd != "" && !slices.Contains(etcdTypes, o.etcd):
		return clierr.New(clierr.BadInput, oneOf(etcdTypes), "invalid etcd type %q", o.etcd)
	case o.expose != "" && !slices.Contains(exposeTypes(), o.expose):
		return clierr.New(clierr.BadInput, oneOf(exposeTypes()),
			"there is no way to expose a shard called %q", o.expose)
	case (len(o.endpoints) > 0 || o.tlsSecret != "") && o.etcd != etcdExternal:
		return clierr.New(clierr.BadInput, "add --etcd external",
			"--etcd-endpoint and --etcd-tls-secret require an external etcd")
	}
	return o.edit.validateEdit(o.setup.file)
}

func (o *addShardOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	before, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	edited, err := o.edited(before.file)
	if err != nil {
		return err
	}
	return addition{
		applyFlags: &o.edit, what: fmt.Sprintf("shard %q", o.name), scope: o.scope, ready: o.requireRootShard,
		explain: o.explain, done: o.printNext,
	}.apply(ctx, before, edited)
}

func (o *addShardOptions) printNext(context.Context, *session) error {
	if o.edit.wait.output == "" {
		fmt.Fprintf(o.env.Streams.Err, "\nshard %q is ready for workspaces. Try:\n  %s\n", o.name,
			o.setup.command("status"))
	}
	return nil
}

// edited is the setup file with the shard; the same file if it has the shard already.
func (o *addShardOptions) edited(f *setup.File) (*setup.File, error) {
	at := slices.IndexFunc(f.Setup.Spec.Shards, func(s v1alpha1.Shard) bool { return s.Name == o.name })
	if at < 0 {
		return f.AddShard(o.shard())
	}
	if flags := o.differences(&f.Setup.Spec.Shards[at]); len(flags) > 0 {
		hint := "choose another name, or change the shard in the file and run " + o.setup.command("up")
		return nil, clierr.New(clierr.BadInput, hint, "%s already has a shard %q that does not match %s",
			f.Name, o.name, strings.Join(flags, ", "))
	}
	return f, nil
}

func (o *addShardOptions) shard() v1alpha1.Shard {
	s := v1alpha1.Shard{Name: o.name, ShardSpec: v1alpha1.ShardSpec{
		URL: o.url, Labels: o.labels,
		Component: v1alpha1.Component{Cluster: o.cluster, Expose: v1alpha1.Expose{Type: v1alpha1.ExposeType(o.expose)}},
	}}
	s.Replicas = o.replicas
	switch o.etcd {
	case etcdManaged:
		s.Etcd = &v1alpha1.Etcd{Managed: &v1alpha1.ManagedEtcd{}}
	case etcdEmbedded:
		s.Etcd = &v1alpha1.Etcd{Embedded: &v1alpha1.EmbeddedEtcd{}}
	case etcdExternal:
		s.Etcd = &v1alpha1.Etcd{External: &v1alpha1.ExternalEtcd{Endpoints: o.endpoints, TLSSecret: o.tlsSecret}}
	}
	return s
}

// differences are the flags that contradict the shard that the file already has.
func (o *addShardOptions) differences(have *v1alpha1.Shard) []string {
	external := have.Etcd.External
	var flags []string
	for _, d := range []struct {
		flag    string
		differs bool
	}{
		{"--cluster", o.cluster != "" && o.cluster != have.Cluster},
		{"--url", o.url != "" && o.url != have.URL},
		{"--expose", o.expose != "" && o.expose != string(have.Expose.Type)},
		{"--replicas", o.replicas != 0 && o.replicas != have.Replicas},
		{"--etcd", o.etcd == etcdManaged && have.Etcd.Managed == nil ||
			o.etcd == etcdEmbedded && have.Etcd.Embedded == nil ||
			o.etcd == etcdExternal && external == nil},
		{"--etcd-endpoint", len(o.endpoints) > 0 && external != nil && !slices.Equal(o.endpoints, external.Endpoints)},
		{"--etcd-tls-secret", o.tlsSecret != "" && external != nil && o.tlsSecret != external.TLSSecret},
		{"--label", len(o.labels) > 0 && !maps.Equal(o.labels, have.Labels)},
	} {
		if d.differs {
			flags = append(flags, d.flag)
		}
	}
	return flags
}

// scope limits the run to the shard and what only the shard needs.
func (o *addShardOptions) scope(s *session) deploy.UpOptions {
	shard := s.topology.Component(topology.IDOf(topology.Shard, o.name))
	only := []topology.ID{shard.ID()}
	for _, need := range shard.Needs {
		if k := need.Kind(); k == topology.Base || k == topology.Etcd {
			only = append(only, need)
		}
	}
	return deploy.UpOptions{Only: only, Canaries: []topology.ID{shard.ID()}}
}

// requireRootShard fails, before the file is edited, if there is no root shard that the shard can join.
func (o *addShardOptions) requireRootShard(ctx context.Context, s *session) error {
	root, err := s.rootShard(ctx)
	if err != nil {
		return err
	}
	if _, err := root.Shards(ctx); err != nil {
		return clierr.New(clierr.NotReady, "run "+o.setup.command("up")+" first",
			"the root shard, which the new shard joins, does not respond: %w; nothing was changed", err)
	}
	return nil
}

// explain adds to an error how to continue with a shard that is in the setup file.
func (o *addShardOptions) explain(err error) error {
	hint := fmt.Sprintf("the shard is in %s: fix the cause and rerun this command, or run %s; to remove "+
		"the shard, run %s",
		o.setup.file, o.setup.command("up"), o.setup.command("remove-shard "+o.name))
	if clierr.Code(err) == clierr.Conflict {
		return clierr.Also(err, hint)
	}
	return &clierr.Error{Err: err, Code: clierr.Code(err), Hint: hint}
}
