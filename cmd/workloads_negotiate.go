package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

type workloadsNegotiateOptions struct {
	env     *Env
	setup   setupFlags
	apis    []schema.GroupResource
	narrow  string
	widen   bool
	yes     bool
	timeout time.Duration
	output  string
}

func newWorkloadsNegotiateCmd(env *Env) *cobra.Command {
	o := &workloadsNegotiateOptions{env: env}
	c := &cobra.Command{
		Use:   "negotiate [API...] [--narrow CLUSTER | --widen]",
		Short: "Change the published schemas of APIs to what clusters can serve",
		Long: `Show what would change in the published schemas, and change them with --narrow or --widen. The schema
of an API stays as it was published first, because kcp drops fields that a new schema lacks.

With --narrow, the schemas lose what the cluster does not accept, so that it can serve the APIs. The command first
lists all these fields, and how many objects of which workspaces have them: kcp drops the fields at the next write
of such an object, or refuses it. Leaves are not counted. With --widen, the schemas gain the fields and defaults
that all clusters have by now.

The command reads the schemas of the clusters itself, with the kubeconfigs of the setup file. Without API arguments,
all APIs change.`,
		Example: `  kcpctl workloads negotiate
  kcpctl workloads negotiate --narrow c2
  kcpctl workloads negotiate deployments.apps --widen --yes`,
		RunE: func(c *cobra.Command, args []string) error {
			if o.narrow == "" && c.Flags().Changed("narrow") {
				return clierr.New(clierr.BadInput, "specify the name of a cluster", "--narrow is empty")
			}
			for _, name := range args {
				o.apis = append(o.apis, schema.ParseGroupResource(name))
			}
			return o.run(c.Context())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	o.setup.add(f)
	f.StringVar(&o.narrow, "narrow", "", "name of the cluster whose schemas the published ones must not exceed")
	completeFlag(c, "narrow", o.setup.names(env, physicalNames))
	f.BoolVar(&o.widen, "widen", false, "publish fields and defaults that all clusters have")
	addYes(f, &o.yes)
	addTimeout(f, &o.timeout, "wait for the controller")
	addOutput(c, &o.output, "", machineFormats...)
	return c
}

// schemaChanges is the result in machineFormats.
type schemaChanges struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Name       string         `json:"name"`
	Items      []schemaChange `json:"items"`
}

func (o *workloadsNegotiateOptions) run(ctx context.Context) error {
	if o.narrow != "" && o.widen {
		return clierr.New(clierr.BadInput, "specify one of them", "--narrow and --widen cannot be used together")
	}
	if err := checkTimeout(o.timeout); err != nil {
		return err
	}
	s, c, err := openCompute(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	return o.negotiate(ctx, s.negotiation(c, o.timeout))
}

// negotiate lists the changes, and makes those that the flags request.
func (o *workloadsNegotiateOptions) negotiate(ctx context.Context, n *negotiation) error {
	in, err := n.published(ctx)
	if err != nil {
		return err
	}
	if o.narrow == "" && !o.widen {
		all, err := n.preview(ctx, in, o.apis)
		if err != nil {
			return err
		}
		return o.print(n, all, previewColumns(), schemaChange.preview,
			"nothing can change: all clusters accept the published schemas, and have no other fields in common")
	}
	var r *schemaRequest
	if o.widen {
		r, err = n.widening(ctx, in, o.apis)
	} else {
		r, err = n.narrowing(ctx, in, o.narrow, o.apis)
	}
	if err != nil {
		return err
	}
	if err := r.refusal(); err != nil {
		return err
	}
	items, err := n.fields(ctx, r)
	if err != nil {
		return err
	}
	if err := o.print(n, items, fieldColumns(), schemaChange.field, "nothing changes: "+r.nothing()); err != nil {
		return err
	}
	return n.change(ctx, r, o.yes)
}

// print prints changes, or what stands for none.
func (o *workloadsNegotiateOptions) print(n *negotiation, all []schemaChange, header []string,
	row func(schemaChange) []string, none string) error {
	if o.output != "" {
		return encode(o.env.Streams.Out, o.output, schemaChanges{
			APIVersion: v1alpha1.APIVersion, Kind: "SchemaChangeList", Name: n.setup,
			Items: append([]schemaChange{}, all...),
		})
	}
	if len(all) == 0 {
		fmt.Fprintf(o.env.Streams.Err, "%s.\n", none)
		return nil
	}
	printChanges(o.env.Streams.Out, all, header, row)
	return nil
}
