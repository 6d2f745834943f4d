package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// The values of --etcd.
const (
	etcdManaged  = "managed"
	etcdEmbedded = "embedded"
	etcdExternal = "external"
)

type addShardOptions struct {
	setupOptions
	editOptions
	name      string
	cluster   string
	url       string
	replicas  int32
	etcd      string
	endpoints []string
	tlsSecret string
	labels    map[string]string
}

func newAddShardCmd(g *globalOptions) *cobra.Command {
	o := &addShardOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "add-shard NAME",
		Short: "Add a shard to the setup file and bring it in",
		Long: `Add-shard writes a shard into the setup file, where comments, order and style stay as they are, and brings just that shard
up: its etcd, its certificates and its server. Then it waits until kcp has registered the shard, and until a workspace there
becomes Ready. Nothing else is changed or started again.

If it is interrupted, or the shard does not come up, the file keeps the shard: the same command, or kcpctl up, goes on.

Labels are set on the Shard object in kcp, where workspaces select by them; the setup file does not keep them.`,
		Example: `  kcpctl add-shard gamma
  kcpctl add-shard gamma --cluster us --url https://gamma.example.com:6443 --label region=us --dry-run`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.addFlags(f)
	f.StringVar(&o.cluster, "cluster", "", "cluster of the setup to place it on (default the root shard's)")
	f.StringVar(&o.url, "url", "", "base URL, how other shards and front-proxies reach it (default its Service)")
	f.Int32Var(&o.replicas, "replicas", 0, "replicas (default those of spec.defaults)")
	f.StringVar(&o.etcd, "etcd", "", "managed, embedded or external (default spec.etcd)")
	f.StringSliceVar(&o.endpoints, "etcd-endpoint", nil, "URL of the external etcd, may be repeated")
	f.StringVar(&o.tlsSecret, "etcd-tls-secret", "", "Secret with the client credentials of the external etcd")
	f.StringToStringVar(&o.labels, "label", nil, "label of the Shard object in kcp, may be repeated")
	o.addEditFlags(c, 10*time.Minute, "the shard serves")
	c.ValidArgsFunction = cobra.NoFileCompletions
	completeFlag(c, "cluster", o.fromFile(theClusters))
	completeFlag(c, "etcd", these(etcdManaged, etcdEmbedded, etcdExternal))
	return c
}

func (o *addShardOptions) complete(args []string) (err error) {
	if o.name, err = oneArg(args, "shard name"); err != nil {
		return err
	}
	external := len(o.endpoints) > 0 || o.tlsSecret != ""
	switch {
	case o.etcd != "" && !slices.Contains([]string{etcdManaged, etcdEmbedded, etcdExternal}, o.etcd):
		return clierr.New(clierr.BadInput, oneOf([]string{etcdManaged, etcdEmbedded, etcdExternal}), "unknown kind of etcd %q", o.etcd)
	case external && o.etcd != etcdExternal:
		return clierr.New(clierr.BadInput, "add --etcd external", "--etcd-endpoint and --etcd-tls-secret are for an external etcd")
	case o.replicas < 0:
		return clierr.New(clierr.BadInput, "", "--replicas must be positive")
	}
	for k, v := range o.labels {
		if problems := append(content.IsLabelKey(k), validation.IsValidLabelValue(v)...); len(problems) > 0 {
			return clierr.New(clierr.BadInput, "", "label %s=%s: %s", k, v, strings.Join(problems, "; "))
		}
		if k == "name" && v != o.name {
			return clierr.New(clierr.BadInput, "choose another label", "the label name of a Shard is the shard's name")
		}
	}
	return o.check(o.file)
}

// shard is the shard as the flags describe it.
func (o *addShardOptions) shard() v1alpha1.Shard {
	s := v1alpha1.Shard{Name: o.name, ShardSpec: v1alpha1.ShardSpec{URL: o.url, Component: v1alpha1.Component{Cluster: o.cluster}}}
	if o.replicas > 0 {
		s.Replicas = &o.replicas
	}
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

// differences are the flags that contradict the shard which the file has already.
func (o *addShardOptions) differences(have *v1alpha1.Shard) []string {
	var out []string
	for _, d := range []struct {
		flag    string
		differs bool
	}{
		{"--cluster", o.cluster != "" && o.cluster != have.Cluster},
		{"--url", o.url != "" && o.url != have.URL},
		{"--replicas", o.replicas > 0 && o.replicas != *have.Replicas},
		{"--etcd", o.etcd == etcdManaged && have.Etcd.Managed == nil || o.etcd == etcdEmbedded && have.Etcd.Embedded == nil ||
			o.etcd == etcdExternal && have.Etcd.External == nil},
		{"--etcd-endpoint", len(o.endpoints) > 0 && have.Etcd.External != nil && !slices.Equal(o.endpoints, have.Etcd.External.Endpoints)},
		{"--etcd-tls-secret", o.tlsSecret != "" && have.Etcd.External != nil && o.tlsSecret != have.Etcd.External.TLSSecret},
	} {
		if d.differs {
			out = append(out, d.flag)
		}
	}
	return out
}

// edited is the setup file with the shard; the same one if it has the shard already.
func (o *addShardOptions) edited(f *setup.File) (*setup.File, error) {
	at := slices.IndexFunc(f.Setup.Spec.Shards, func(s v1alpha1.Shard) bool { return s.Name == o.name })
	if at < 0 {
		return f.AddShard(o.shard())
	}
	if differ := o.differences(&f.Setup.Spec.Shards[at]); len(differ) > 0 {
		return nil, clierr.New(clierr.BadInput, "choose another name, or change the shard in the file and run kcpctl up",
			"%s has a shard %q already, and it differs: %s", f.Name, o.name, strings.Join(differ, ", "))
	}
	return f, nil
}

func (o *addShardOptions) run(ctx context.Context) error {
	before, err := o.load()
	if err != nil {
		return err
	}
	edited, err := o.edited(before.File)
	if err != nil {
		return err
	}
	s, err := before.with(edited)
	if err != nil {
		return err
	}
	if o.dryRun != dryRunNone {
		return o.preview(ctx, before, s, o.header(s), o.options(s))
	}
	if err := o.rootIsUp(ctx, before); err != nil {
		return err
	}
	rt, err := s.open()
	if err != nil {
		return err
	}
	defer rt.Close()
	options := o.options(s)
	if edit := before.edit(s); edit != nil {
		options.Edit = func() error {
			if err := edit(); err != nil {
				return err
			}
			s.say(fmt.Sprintf("%s has the shard %q now", before.File.Name, o.name))
			return nil
		}
	}
	if len(o.labels) > 0 {
		options.Finally = func(ctx context.Context) error {
			return askRoot(ctx, s, rt, func(root *kcp.Client) error { return root.LabelShard(ctx, o.name, o.labels) })
		}
	}
	options.Force = o.force
	if _, err := s.bring(ctx, rt, o.header(s), o.bringOptions, options); err != nil {
		return o.explain(err)
	}
	if o.output == "" {
		fmt.Fprintf(o.Streams.Err, "\nshard %q takes workspaces. Try:\n  kcpctl status%s\n", o.name, o.flagsForTip())
	}
	return nil
}

func (o *addShardOptions) header(s *session) string {
	return fmt.Sprintf("add shard %q to kcp %q", o.name, s.Topology.Name)
}

// options limit the run to the shard and what it needs for itself.
func (o *addShardOptions) options(s *session) run.UpOptions {
	shard := s.Topology.Component(topology.IDOf(topology.Shard, o.name))
	only := []topology.ID{shard.ID()}
	for _, need := range shard.Needs {
		if k := need.Kind(); k == topology.Base || k == topology.Etcd {
			only = append(only, need)
		}
	}
	return run.UpOptions{Only: only, Canaries: []topology.ID{shard.ID()}}
}

// rootIsUp makes sure, before the file is edited, that there is a kcp which the shard can join.
func (o *addShardOptions) rootIsUp(ctx context.Context, s *session) error {
	return s.askRoot(ctx, func(_ run.Runtime, root *kcp.Client) error {
		if _, err := root.Shards(ctx); err != nil {
			return clierr.New(clierr.NotReady, "run kcpctl up"+o.flagsForTip()+" first; nothing was changed",
				"the root shard, which the new shard joins, does not answer: %w", err)
		}
		return nil
	})
}

// explain adds to an error how to go on.
func (o *addShardOptions) explain(err error) error {
	hint := fmt.Sprintf("%s keeps the shard: fix the cause and run this command again, or kcpctl up%s; kcpctl remove-shard %s takes it out",
		o.file, o.flagsForTip(), o.name)
	if h := clierr.Hint(err); h != "" && clierr.Code(err) == clierr.Conflict {
		hint = h + "; " + hint
	}
	return &clierr.Error{Err: err, Code: clierr.Code(err), Hint: hint}
}
