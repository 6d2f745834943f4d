package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/check"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/ui"
)

type upOptions struct {
	setupOptions
	bringOptions
	dryRun         string
	forceConflicts bool
	onPurpose
	foreground   bool
	ignoreChecks []string
	only         []string
}

func newUpCmd(g *globalOptions, runE func(context.Context, *upOptions) error) *cobra.Command {
	o := &upOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "up",
		Short: "Bring a setup up, or change a running one",
		Long: `Up compares the setup with what runs, shows what differs, writes just that, in the order of the components, and waits
until kcp serves: every shard is registered, and a workspace on each becomes Ready and is read through the front-proxy.

It can be interrupted at any moment: the same command goes on where it was.

--only limits a run to components, whatever the setup says of the others. What they need has to be there, and
for the workspaces a front-proxy: --skip-canary does without.

Exit codes: 0 done, 1 failed, 2 bad flags or setup file, 3 not ready in time, 4 conflict, 130 interrupted.`,
		Example: `  kcpctl up
  kcpctl up -f examples/sharded.yaml --dry-run=server
  kcpctl up --only shard/alpha --only etcd/alpha`,
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
	addDryRun(c, &o.dryRun, "list what would be sent")
	f.StringSliceVar(&o.only, "only", nil, "component to bring up, may be repeated; all others stay as they are, and nothing is deleted")
	o.addBringFlags(c, 10*time.Minute, "everything is ready")
	f.BoolVar(&o.forceConflicts, "force-conflicts", false, "take over fields that other field managers own")
	o.addOtherClusterFlag(f)
	o.addPurposeFlags(c, o.fromFile(theParts))
	f.StringSliceVar(&o.ignoreChecks, "ignore-checks", nil, "IDs of checks of which a failure is a warning only (see kcpctl explain)")
	f.BoolVar(&o.foreground, "foreground", false, "with --local: stay, and stop everything on Ctrl-C")
	completeFlag(c, "only", o.fromFile(theParts))
	completeFlag(c, "ignore-checks", allChecks)
	return c
}

func (o *upOptions) validate() error {
	if o.foreground && !o.local {
		return clierr.New(clierr.BadInput, "add --local", "--foreground is for processes of this machine")
	}
	if len(o.only) > 0 && o.replaceAuthorities {
		return clierr.New(clierr.BadInput, "leave out --only", "--%s is about all components: those with new certificates and those with earlier ones would not trust each other",
			record.FlagReplaceAuthorities)
	}
	for _, id := range o.ignoreChecks {
		if _, ok := check.Find(id); !ok {
			return clierr.New(clierr.BadInput, "kcpctl explain lists all checks", "there is no check %q", id)
		}
	}
	return errors.Join(checkDryRun(o.dryRun), checkTimeout(o.timeout))
}

func runUp(ctx context.Context, o *upOptions) error {
	s, err := o.load()
	if err != nil {
		return err
	}
	only, err := s.chosen(o.only)
	if err != nil {
		return err
	}
	if o.dryRun == dryRunClient {
		return s.listObjects(ctx, only)
	}
	if o.dryRun == dryRunNone {
		if err := s.choosePorts(ctx); err != nil {
			return err
		}
	}
	rt, err := s.open()
	if err != nil {
		return err
	}
	defer rt.Close()
	if o.dryRun == dryRunNone {
		if err := s.inPlace(ctx, rt, only); err != nil {
			return err
		}
	}
	res, err := s.bring(ctx, rt, s.header(rt), o.bringOptions, run.UpOptions{
		PlanOptions: run.PlanOptions{Force: o.forceConflicts},
		Only:        only, DryRun: o.dryRun == dryRunServer,
		AllowDataChange: o.dataChanges(), AllowReleaseChange: o.releaseChange, ReplaceAuthorities: o.replaceAuthorities,
	}, o.ignoreChecks...)
	if err == nil && o.output != outputJSON {
		o.finish(s, res)
	}
	if o.foreground {
		return o.stay(ctx, rt, err)
	}
	return err
}

// finish prints what is left to say when a run has succeeded.
func (o *upOptions) finish(s *session, res *run.Result) {
	if o.dryRun == dryRunServer {
		ui.PrintPlan(o.Streams.Out, res.Plan)
		return
	}
	o.tip(s, res.Plan)
}

// tip says how to go on.
func (o *upOptions) tip(s *session, p *plan.Plan) {
	w := o.Streams.Err
	flags := o.flagsForTip()
	if len(o.only) > 0 {
		fmt.Fprintf(w, "\n%s of kcp %q: %s. Everything else is as it was.\n", strings.Join(o.only, ", "), s.Topology.Name, p.Summary())
		return
	}
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

// listObjects is the dry run that asks nobody: every object that up would send, of some components or of all.
func (s *session) listObjects(ctx context.Context, only []topology.ID) error {
	res, err := s.ensureOffline(ctx)
	if err != nil {
		return err
	}
	objects, err := render.Objects(s.Topology, res.State)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if len(only) > 0 && !slices.Contains(only, obj.Component) {
			continue
		}
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
