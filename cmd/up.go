package cmd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/check"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/ui"
)

// The values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

type upOptions struct {
	setupOptions
	dryRun          string
	timeout         time.Duration
	skipCanary      bool
	forceConflicts  bool
	allowEtcdChange bool
	output          string
	foreground      bool
	ignoreChecks    []string
}

func newUpCmd(g *globalOptions, runE func(context.Context, *upOptions) error) *cobra.Command {
	o := &upOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "up",
		Short: "Bring a setup up, or change a running one",
		Long: `Up compares the setup with what runs, shows what differs, writes just that, in the order of the components, and waits
until kcp serves: every shard is registered, and a workspace on each becomes Ready and is read through the front-proxy.

It can be interrupted at any moment: the same command goes on where it was.

Exit codes: 0 done, 1 failed, 2 bad flags or setup file, 3 not ready in time, 4 conflict, 130 interrupted.`,
		Example: `  kcpctl up
  kcpctl up -f examples/sharded.yaml --dry-run=server`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return runE(c.Context(), o)
		},
	}
	f := c.Flags()
	o.addFlags(f)
	f.StringVar(&o.dryRun, "dry-run", dryRunNone, "client: list what would be sent, without a cluster; server: what would change; none")
	f.Lookup("dry-run").NoOptDefVal = dryRunServer
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long to wait until everything is ready, 0 for ever")
	f.BoolVar(&o.skipCanary, "skip-canary", false, "do not create a workspace on each shard to prove that it serves")
	f.BoolVar(&o.forceConflicts, "force-conflicts", false, "take over fields that other field managers own")
	o.addOtherClusterFlag(f)
	f.BoolVar(&o.allowEtcdChange, "allow-etcd-change", false, "let a shard start on another etcd than the one that holds its data")
	f.StringSliceVar(&o.ignoreChecks, "ignore-checks", nil, "IDs of checks of which a failure is a warning only (see kcpctl explain)")
	f.StringVarP(&o.output, "output", "o", "", "json: one event per line on stdout")
	f.BoolVar(&o.foreground, "foreground", false, "with --local: stay, and stop everything on Ctrl-C")
	return c
}

func (o *upOptions) validate() error {
	if !slices.Contains([]string{dryRunNone, dryRunClient, dryRunServer}, o.dryRun) {
		return clierr.New(clierr.BadInput, "use --dry-run=client or --dry-run=server", "unknown dry run %q", o.dryRun)
	}
	if o.output != "" && o.output != "json" {
		return clierr.New(clierr.BadInput, "use -o json", "unknown output format %q", o.output)
	}
	if o.foreground && !o.local {
		return clierr.New(clierr.BadInput, "add --local", "--foreground is for processes of this machine")
	}
	for _, id := range o.ignoreChecks {
		if _, ok := check.Find(id); !ok {
			return clierr.New(clierr.BadInput, "kcpctl explain lists all checks", "there is no check %q", id)
		}
	}
	if o.timeout < 0 {
		return clierr.New(clierr.BadInput, "use a duration such as 10m, or 0 to wait for ever", "negative timeout %s", o.timeout)
	}
	return nil
}

func runUp(ctx context.Context, o *upOptions) error {
	s, err := o.load()
	if err != nil {
		return err
	}
	if o.dryRun == dryRunClient {
		return s.listObjects(ctx)
	}
	var progress ui.Progress
	notify := func(msg string) {
		progress.Observe(run.Event{Time: o.Now(), Scope: run.Note, Message: msg})
	}
	rt, err := s.open(notify)
	if err != nil {
		return err
	}
	defer rt.Close()
	remembered, err := setup.Marshal(s.File.Setup)
	if err != nil {
		return err
	}
	progress = ui.NewProgress(ctx, o.Streams, ui.ProgressOptions{Header: s.header(rt), JSON: o.output == "json", Now: o.Now})
	up := &run.Up{
		Topology: s.Topology, Runtime: rt, Setup: remembered, Observe: progress.Observe, Now: o.Now,
		Preflight: s.preflight(rt, o.ignoreChecks...),
		Options: run.UpOptions{
			PlanOptions: run.PlanOptions{
				Force: o.forceConflicts, AllowOtherCluster: o.allowOtherCluster, AllowEtcdChange: o.allowEtcdChange,
			},
			DryRun: o.dryRun == dryRunServer, SkipCanary: o.skipCanary, Timeout: o.timeout,
		},
	}
	res, err := up.Run(ctx)
	progress.Close()
	err = o.finish(s, res, err)
	if o.foreground {
		return o.stay(ctx, rt, err)
	}
	return err
}

// finish prints what is left to say when a run has ended.
func (o *upOptions) finish(s *session, res *run.Result, err error) error {
	if o.output == "json" {
		return err
	}
	switch {
	case res != nil && res.Plan != nil && len(res.Plan.Conflicts) > 0:
		ui.PrintConflicts(o.Streams.Err, res.Plan.Conflicts)
	case err == nil && o.dryRun == dryRunServer:
		ui.PrintPlan(o.Streams.Out, res.Plan)
	case err == nil:
		o.tip(s, res.Plan)
	}
	return err
}

// tip says how to go on.
func (o *upOptions) tip(s *session, p *plan.Plan) {
	w := o.Streams.Err
	flags := o.flagsForTip()
	if p.Empty() {
		fmt.Fprintf(w, "\nkcp %q is up to date: 0 changes.\n", s.Topology.Name)
		return
	}
	fmt.Fprintf(w, "\nkcp %q is up. Try:\n", s.Topology.Name)
	for _, line := range tips(quote(o.Program), s.Topology, flags) {
		fmt.Fprintf(w, "  %s\n", line)
	}
}

func (s *session) header(rt run.Runtime) string {
	n := len(s.Topology.Components)
	return fmt.Sprintf("kcp %q %s → %s  (setup %s, %d components)", s.Topology.Name, s.File.Setup.Spec.Version, rt.Where(), s.File.Name, n)
}

// listObjects is the dry run that asks nobody: every object that up would send.
func (s *session) listObjects(ctx context.Context) error {
	res, err := s.ensureOffline(ctx)
	if err != nil {
		return err
	}
	objects, err := render.Objects(s.Topology, res.State)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		fmt.Fprintf(s.Streams.Out, "%s (client dry run)\n", plan.RefOf(obj.Cluster, obj.Unstructured))
	}
	return nil
}

// ensureOffline brings the PKI of a directory up to date, in memory, or makes one that lives there only.
func (s *session) ensureOffline(ctx context.Context) (*pki.Result, error) {
	state := &pki.State{}
	if st := s.directoryStore(); st != nil {
		var err error
		if state, err = st.Load(ctx); err != nil {
			return nil, err
		}
	}
	return pki.Ensure(s.Topology, state, pki.Options{Now: s.Now()})
}
