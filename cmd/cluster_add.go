package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/workload/api"
)

// The values of --mode.
const (
	modePush = "push"
	modeNone = "none"
)

type clusterAddOptions struct {
	env        *Env
	setup      setupFlags
	edit       editFlags
	name       string
	context    string
	kubeconfig string
	server     string
	mode       string
	labels     map[string]string
}

func newClusterAddCmd(env *Env) *cobra.Command {
	o := &clusterAddOptions{env: env}
	c := &cobra.Command{
		Use:   "add NAME --context CONTEXT",
		Short: "Add a physical cluster to the setup file and register it",
		Long: `Add adds a physical cluster to spec.workloads in the setup file, keeping its comments, order and style, and
registers only that cluster. It waits until the cluster is Ready, and prints the APIs that it serves. The
first cluster also starts the controller. The kubeconfig is not stored: kcpctl creates a ServiceAccount on
the cluster, and the controller uses its token.

--context and --kubeconfig are those of the physical cluster. Those of kcp itself are in the setup file.

If the command is interrupted or the cluster does not become ready, the cluster stays in the file: run
kcpctl up to continue.`,
		Example: `  kcpctl cluster add c1 --context eu-prod --label region=eu
  kcpctl cluster add edge --context edge --mode none`,
		Args: oneArg("cluster name"),
		RunE: func(c *cobra.Command, args []string) error {
			o.name = args[0]
			return o.run(c.Context())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	o.setup.add(f)
	for _, name := range []string{"context", "kubeconfig"} {
		allow(f, nil, name) // a variable is about the cluster of kcp
	}
	f.Lookup("context").Usage = "kubeconfig context of the physical cluster (default: the current context)"
	f.Lookup("kubeconfig").Usage = "path to the kubeconfig of the physical cluster (default: the one that kubectl uses)"
	f.StringVar(&o.server, "server", "", "URL at which the controller reaches the API server (default: that of the kubeconfig)")
	f.StringVar(&o.mode, "mode", modePush, "where the syncer runs: push (in the controller) or none (you start it)")
	completeFlag(c, "mode", fixed(modePush, modeNone))
	f.StringToStringVar(&o.labels, "label", nil, "label of the cluster, as `KEY=VALUE`; users select clusters by labels (repeatable)")
	f.Lookup("label").DefValue = "" // not []
	o.edit.add(c, 10*time.Minute, "the cluster is ready")
	return c
}

func (o *clusterAddOptions) run(ctx context.Context) error {
	if err := o.edit.validate(o.setup.file); err != nil {
		return err
	}
	if o.mode != modePush && o.mode != modeNone {
		return clierr.New(clierr.BadInput, "use push or none", "invalid --mode %q", o.mode)
	}
	o.context, o.kubeconfig, o.setup.context, o.setup.kubeconfig = o.setup.context, o.setup.kubeconfig, "", ""
	before, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	if slices.Contains(physicalNames(before), o.name) {
		return clierr.New(clierr.BadInput, "choose another name, or change the cluster in the file and run "+o.setup.command("up"),
			"%s already has a cluster %q in spec.workloads.clusters", before.file.Name, o.name)
	}
	edited, err := before.file.AddCluster(o.cluster())
	if err != nil {
		return err
	}
	s, err := before.with(edited)
	if err != nil {
		return err
	}
	up := upRun{
		header: fmt.Sprintf("add cluster %q to kcp %q", o.name, s.topology.Name), wait: o.edit.wait,
		options: run.UpOptions{PlanOptions: run.PlanOptions{Force: o.edit.forceConflicts}, Only: added(before.topology, s.topology)},
	}
	if o.edit.dryRun != dryRunNone {
		return o.edit.preview(ctx, before, s, up)
	}
	return o.apply(ctx, before, s, up)
}

// cluster is the cluster that the flags describe.
func (o *clusterAddOptions) cluster() v1alpha1.WorkloadCluster {
	c := v1alpha1.WorkloadCluster{Name: o.name, Context: o.context, Kubeconfig: o.kubeconfig, Server: o.server, Labels: o.labels}
	if o.mode == modeNone {
		c.SyncMode = v1alpha1.SyncModeNone
	}
	return c
}

// apply writes the edit, applies what it adds, and prints what became available.
func (o *clusterAddOptions) apply(ctx context.Context, before, s *session, up upRun) error {
	if err := s.connectToApply(ctx); err != nil {
		return err
	}
	defer s.close()
	up.options.Edit = before.writeAddition(s, fmt.Sprintf("cluster %q", o.name))
	if _, err := s.runUp(ctx, up); err != nil {
		return o.explain(err)
	}
	if o.edit.wait.output != "" {
		return nil
	}
	c, err := s.compute(ctx)
	if err != nil {
		return err
	}
	live, err := c.cluster(ctx, o.name)
	if err != nil {
		return err
	}
	if live == nil {
		return clierr.New(clierr.Conflict, "run "+o.setup.command("up"), "Cluster %s in %s was deleted after it was added", o.name, c.workspace)
	}
	o.printAPIs(live)
	return nil
}

// printAPIs prints what workspaces can use of a cluster.
func (o *clusterAddOptions) printAPIs(live *api.Cluster) {
	if o.mode == modeNone && len(live.Status.APIs) == 0 {
		fmt.Fprintf(o.env.Streams.Err, "\ncluster %q is registered. Start its syncer on a machine that reaches kcp and the cluster:\n"+
			"  kcpctl syncer --cluster-name %s --kcp-kubeconfig FILE --kubeconfig FILE\n", o.name, o.name)
		return
	}
	var serves, others []string
	for _, a := range live.Status.APIs {
		switch name := apiName(a); {
		case a.State.Serves():
			serves = append(serves, name)
		case a.State == api.APIIncompatible:
			others = append(others, fmt.Sprintf("%s: %s", name, a.Message))
		}
	}
	what := ". Workspaces can use these APIs there: " + strings.Join(serves, ", ")
	if len(serves) == 0 {
		what = ", but workspaces can use none of its APIs."
	}
	fmt.Fprintf(o.env.Streams.Err, "\ncluster %q is ready%s\n", o.name, what)
	for _, problem := range others {
		o.env.note("it cannot serve " + problem)
	}
}

// apiName is the name of an API: deployments.apps.
func apiName(a api.APIStatus) string { return strings.TrimSuffix(a.Resource+"."+a.Group, ".") }

// explain adds to an error how to continue.
func (o *clusterAddOptions) explain(err error) error {
	return clierr.Also(err, fmt.Sprintf("if the cluster is in %s, fix the cause and run %s", o.setup.file, o.setup.command("up")))
}
