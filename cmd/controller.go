package cmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/version"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/internal/workload/server/controller"
	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
)

type controllerOptions struct {
	env                 *Env
	kubeconfig, context string
	workspace           string
	workspaceType       string
	apis                []string
	server              serverFlags
	setupID             string
}

func newControllerCmd(env *Env) *cobra.Command {
	o := &controllerOptions{env: env}
	c := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller of transparent multi-cluster",
		Long: `Publish the APIs of physical clusters in kcp, check whether the clusters are ready, and sync the clusters
whose syncMode is Push. The Cluster objects are in the compute workspace, which has to exist. If several
controllers run, only one of them is active.`,
		Example: "  kcpctl controller --kubeconfig kcp.kubeconfig --workspace root:compute",
		Args:    noArgs,
		RunE:    withoutArgs(o.run),
	}
	f := c.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path to the kubeconfig of kcp")
	f.StringVar(&o.context, "context", "", "kubeconfig context to use")
	f.StringVar(&o.setupID, "setup-id", "",
		"ID of this kcp in physical clusters: for one that kcpctl manages, the installation ID (default: the "+
			"logical cluster of --workspace)")
	f.StringVar(&o.workspace, "workspace", setup.DefaultComputeWorkspace, "path of the compute workspace")
	f.StringVar(&o.workspaceType, "workspace-type", setup.DefaultWorkspaceType,
		"name of the WorkspaceType whose workspaces can use the APIs")
	f.StringSliceVar(&o.apis, "apis", api.DefaultAPIs(), "APIs to publish, as RESOURCE.GROUP")
	o.server.add(f)
	return c
}

func (o *controllerOptions) run(ctx context.Context) error {
	var apis []schema.GroupResource
	for _, a := range o.apis {
		gr := schema.ParseGroupResource(strings.TrimSpace(a))
		if gr.Resource == "" {
			return clierr.New(clierr.BadInput, "specify RESOURCE.GROUP, such as deployments.apps",
				"--apis: %q is not an API", a)
		}
		apis = append(apis, gr)
	}
	kcp, err := connect.KCP(o.kubeconfig, o.context)
	if err != nil {
		return err
	}
	p := &probe.Probe{}
	if ctx, err = o.server.start(ctx, o.env, p); err != nil {
		return err
	}
	self := holder()
	lead := kube.Lead{
		Config: connect.Workspace(kcp, o.workspace), Namespace: api.NamespaceLeases, Name: topology.ControllerLease,
		Holder: self, Now: o.env.Now,
		Notify: func(format string, args ...any) { klog.Infof(format, args...) },
	}
	return lead.Run(ctx, func(ctx context.Context) error {
		return controller.Run(ctx, controller.Options{
			Setup: o.setupID, KCP: kcp, Workspace: o.workspace, APIs: apis, WorkspaceType: o.workspaceType,
			Version: version.Get().Version, Holder: self.String(),
			Connect: connect.Content, Now: o.env.Now, Probe: p,
		})
	})
}
