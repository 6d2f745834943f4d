package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// The values of --mode.
const (
	modePush = "push"
	modePull = "pull"
	modeNone = "none"
)

type clusterAddOptions struct {
	env        *Env
	setup      setupFlags
	edit       applyFlags
	name       string
	context    string
	kubeconfig string
	server     string
	mode       string
	labels     map[string]string
	yes        bool
}

func newClusterAddCmd(env *Env) *cobra.Command {
	o := &clusterAddOptions{env: env}
	c := &cobra.Command{
		Use:   "add NAME --context CONTEXT",
		Short: "Add a physical cluster to the setup file and register it",
		Long: `Add a physical cluster to spec.workloads in the setup file, keeping its comments, order and style, and
register only that cluster. Then wait until the cluster is Ready, and print the APIs that it serves. The
first cluster also starts the controller. The kubeconfig is not stored: kcpctl creates a ServiceAccount on
the cluster, and the controller uses its token. With --mode pull, a Deployment in the cluster syncs it and connects
to kcp, for example because the controller cannot connect to the cluster.

--context and --kubeconfig are those of the physical cluster. Those of kcp itself are in the setup file, or come from
KCPCTL_CONTEXT, KCPCTL_KUBECONFIG or the configuration file.

A cluster that lacks fields of a published schema cannot serve the API: kcpctl workloads apis has the reason, and
how a narrower schema is accepted.

A cluster can have namespaces of workspaces of this setup already, for example because it was removed with --force.
The command lists the workspaces, and asks. Objects of workspaces that still have them are adopted. Others are
orphans: they remain until a user releases them.

If the command is interrupted or the cluster does not become ready, the cluster stays in the file: run
kcpctl up to continue.`,
		Example: `  kcpctl cluster add c1 --context eu-prod --label region=eu
  kcpctl cluster add edge --context edge --mode pull`,
		Args:              oneArg("cluster name"),
		RunE:              withArg(&o.name, o.run),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	o.setup.addStarting(f)
	for name, value := range map[string]physicalFlag{
		"context": {&o.context, &o.setup.context}, "kubeconfig": {&o.kubeconfig, &o.setup.kubeconfig},
	} {
		f.Lookup(name).Value = value
		annotate(f, notWith, nil, name)
	}
	f.Lookup("context").Usage = "kubeconfig context of the physical cluster (default: the current context)"
	f.Lookup("kubeconfig").Usage = "path to the kubeconfig of the physical cluster (default: the one that kubectl uses)"
	f.StringVar(&o.server, "server", "",
		"URL at which the controller reaches the API server (default: that of the kubeconfig)")
	f.StringVar(&o.mode, "mode", modePush,
		"where the syncer runs: push (in the controller), pull (in the cluster) or none (you start it)")
	completeFlag(c, "mode", fixed(modePush, modePull, modeNone))
	f.StringToStringVar(&o.labels, "label", nil,
		"label of the cluster, as `KEY=VALUE`; users select clusters by labels (repeatable)")
	f.Lookup("label").DefValue = "" // not []
	addYes(f, &o.yes)
	o.edit.add(c, "the cluster is ready", "the edit")
	return c
}

// physicalFlag is a flag of the physical cluster. Its variable and the configuration file are about the cluster of kcp,
// as in all commands.
type physicalFlag struct{ typed, ofKcp *string }

func (p physicalFlag) Type() string { return "string" }

func (p physicalFlag) String() string { return *p.typed }

func (p physicalFlag) Set(value string) error {
	*p.typed = value
	return nil
}

func (p physicalFlag) setFromSource(value string) { *p.ofKcp = value }

func (o *clusterAddOptions) run(ctx context.Context) error {
	if err := o.edit.validateEdit(o.setup.file); err != nil {
		return err
	}
	if _, ok := syncModeOf(o.mode); !ok {
		return clierr.New(clierr.BadInput, "use push, pull or none", "invalid --mode %q", o.mode)
	}
	if o.setup.local.enabled { // kcp is on no cluster
		o.setup.context = ""
		o.setup.kubeconfig = ""
	}
	before, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	if slices.Contains(physicalNames(before), o.name) {
		return clierr.New(clierr.BadInput,
			"choose another name, or change the cluster in the file and run "+o.setup.command("up"),
			"%s already has a cluster %q in spec.workloads.clusters", before.file.Name, o.name)
	}
	edited, err := before.file.AddCluster(o.cluster())
	if err != nil {
		return err
	}
	add := addition{applyFlags: &o.edit, what: fmt.Sprintf("cluster %q", o.name), ready: o.adopts,
		explain: o.explain, done: o.done}
	return add.apply(ctx, before, edited)
}

func (o *clusterAddOptions) cluster() v1alpha1.WorkloadCluster {
	c := v1alpha1.WorkloadCluster{Name: o.name, Context: o.context, Kubeconfig: o.kubeconfig,
		Server: o.server, Labels: o.labels}
	c.SyncMode, _ = syncModeOf(o.mode)
	return c
}

// syncModeOf returns the sync mode that a value of --mode stands for. Empty is the default of the setup file.
func syncModeOf(mode string) (v1alpha1.SyncMode, bool) {
	switch mode {
	case modePush:
		return "", true
	case modePull:
		return v1alpha1.SyncModePull, true
	case modeNone:
		return v1alpha1.SyncModeNone, true
	}
	return "", false
}

// adopts says what becomes of the namespaces of workspaces that the cluster has already. A cluster that cannot be read
// fails the run later.
func (o *clusterAddOptions) adopts(ctx context.Context, s *session) error {
	lines, ours := s.tenants(ctx, s.topology.Component(topology.IDOf(topology.Physical, o.name))).Adoption()
	for _, line := range lines {
		o.env.note(line)
	}
	if o.yes || !ours {
		return ctx.Err()
	}
	yes, err := o.env.Streams.Confirm(ctx, fmt.Sprintf("Add cluster %q with what runs there?", o.name))
	if err == nil && !yes {
		return errDeclined
	}
	return err
}

// done prints what became available.
func (o *clusterAddOptions) done(ctx context.Context, s *session) error {
	if o.edit.wait.output != "" {
		return nil
	}
	c, err := s.compute(ctx)
	if err != nil {
		return err
	}
	live, err := c.Cluster(ctx, o.name)
	if err != nil {
		return err
	}
	if live == nil {
		return clierr.New(clierr.Conflict, "run "+o.setup.command("up"),
			"Cluster %s in %s was deleted after it was added", o.name, c.Path)
	}
	o.printAPIs(live, c.Path)
	return nil
}

// printAPIs prints what workspaces can use of a cluster.
func (o *clusterAddOptions) printAPIs(live *api.Cluster, workspace string) {
	if o.mode == modeNone && live.Status.Syncer == nil {
		start := "kcpctl syncer --cluster-name " + o.name + " --kcp-kubeconfig kcp.kubeconfig --kubeconfig FILE"
		if workspace != setup.DefaultComputeWorkspace {
			start += " --workspace " + workspace
		}
		fmt.Fprintf(o.env.Streams.Err,
			"\ncluster %q is registered. Start its syncer on a machine that reaches kcp and the cluster:\n  %s\n  %s\n",
			o.name, o.setup.command("kubeconfig --syncer "+o.name+" -o kcp.kubeconfig"), start)
		return
	}
	var serves, others []string
	for _, a := range live.Status.APIs {
		switch name := a.GroupResource().String(); {
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
	for _, a := range live.Status.APIs {
		printAcceptance(o.env.Streams.Err, a, live.Name, workspace)
	}
}

// explain adds to an error how to continue, if the cluster is in the setup file.
func (o *clusterAddOptions) explain(err error) error {
	return clierr.Also(err, fmt.Sprintf("the cluster is in %s: fix the cause and run %s", o.setup.file,
		o.setup.command("up")))
}
