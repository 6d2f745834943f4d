package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/version"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/internal/workload/server/controller"
	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
)

type syncerOptions struct {
	env                    *Env
	kcpKubeconfig          string
	kubeconfig, context    string
	workspace, clusterName string
	server                 serverFlags
}

func newSyncerCmd(env *Env) *cobra.Command {
	o := &syncerOptions{env: env}
	c := &cobra.Command{
		Use:   "syncer",
		Short: "Run the syncer of a physical cluster",
		Long: `Copy the objects in kcp that are scheduled to a physical cluster to that cluster, and their status back to
kcp. It is for Clusters whose syncMode is Pull or None: the controller syncs the others itself. If
several syncers run for a cluster, only one of them is active.`,
		Example: "  kcpctl syncer --cluster-name edge --kcp-kubeconfig kcp.kubeconfig --kubeconfig edge.kubeconfig",
		Args:    noArgs,
		RunE:    withoutArgs(o.run),
	}
	f := c.Flags()
	f.StringVar(&o.clusterName, "cluster-name", "", "name of the Cluster in the compute workspace (required)")
	f.StringVar(&o.kcpKubeconfig, "kcp-kubeconfig", "", "path to the kubeconfig of kcp (required)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "",
		"path to the kubeconfig of the physical cluster (default: that of the pod, or of kubectl)")
	f.StringVar(&o.context, "context", "", "context of --kubeconfig to use")
	f.StringVar(&o.workspace, "workspace", setup.DefaultComputeWorkspace, "path of the compute workspace")
	o.server.add(f)
	return c
}

func (o *syncerOptions) run(ctx context.Context) error {
	switch {
	case o.clusterName == "":
		return clierr.New(clierr.BadInput,
			"list the names with kubectl get clusters.workloads.kcp.dev in the compute workspace",
			"--cluster-name is required")
	case o.kcpKubeconfig == "":
		return clierr.New(clierr.BadInput, "create one with kcpctl kubeconfig --syncer "+o.clusterName,
			"--kcp-kubeconfig is required")
	}
	kcp, err := connect.KCP(o.kcpKubeconfig, "")
	if err != nil {
		return err
	}
	physical, err := connect.File(o.kubeconfig, o.context)
	if err != nil {
		return err
	}
	p := &probe.Probe{}
	if ctx, err = o.server.start(ctx, o.env, p); err != nil {
		return err
	}
	return controller.RunSyncer(ctx, controller.Member{
		KCP: kcp, Physical: physical, Workspace: o.workspace, Cluster: o.clusterName, Version: version.Get().Version,
		Holder: holder().String(), Now: o.env.Now,
		Probe: p, Ended: kube.HasEnded,
	})
}
