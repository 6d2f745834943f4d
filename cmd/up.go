package cmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/agents"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

type upOptions struct {
	applyFlags
	env        *Env
	setup      setupFlags
	override   overrideFlags
	foreground bool
	ephemeral  bool
	// command is what follows --: it runs with the kubeconfig of an ephemeral setup.
	command []string
	// writeInstallation writes the ID of the installation into the setup file, and newInstallation creates the one
	// that it names.
	writeInstallation, newInstallation bool
	ignoreChecks                       []string
	pruneData                          []string
	orphan                             []string
	only                               []string
	// allowUnreachable are clusters that may be left out.
	allowUnreachable []string
}

func newUpCmd(env *Env) *cobra.Command {
	o := &upOptions{env: env}
	c := &cobra.Command{
		Use:   "up [-- COMMAND [ARG...]]",
		Short: "Deploy a setup, or apply changes to a running one",
		Long: `Compare the setup with what is running, show the differences, apply only the differences, in dependency
order, and wait until kcp serves: every shard is registered, and a workspace on each shard becomes
Ready and can be read through the front-proxy.

You can interrupt it at any time: rerun the same command to continue.

--only limits a run to some components, whatever else has changed in the setup file. Their dependencies
must be ready. The workspaces also need a front-proxy; skip them with --skip-canary.

With --local --ephemeral and a command after --, kcpctl runs the command with a kubeconfig for kcp, and
then removes everything. It exits with the exit code of the command.

Exit codes: 0 done, 1 failed, 2 invalid flags or setup file, 3 not ready in time, 4 conflict, 130
interrupted.`,
		Example: `  kcpctl up
  kcpctl up -f examples/sharded.yaml --dry-run=server
  kcpctl up --only shard/alpha --only etcd/alpha
  kcpctl up --local --ephemeral -- go test ./...`,
		RunE: func(c *cobra.Command, args []string) error {
			args, o.command = splitCommand(c, args)
			if err := noArgs(c, args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.setup.addStarting(f)
	o.setup.addAllowOtherCluster(c)
	addRisk(c, acceptance{risk: risk.LostRecord, value: "ID", accept: o.replaceLost,
		usage: "the record of the installation with this ID is lost for good: create a new one in its place"})
	o.add(c, "everything is ready", "the kinds and names of the objects")
	o.wait.addParallel(f)
	selectable := o.setup.names(env, selectableIDs)
	o.override.add(c, selectable)
	f.StringSliceVar(&o.only, "only", nil,
		"apply only this `COMPONENT`, or with place/NAME all components on a cluster of spec.clusters, and delete "+
			"nothing (repeatable)")
	completeFlag(c, "only", o.setup.names(env, withPlaces(selectableIDs, anyComponent)))
	addRisk(c, acceptance{risk: risk.Unreachable, value: "CLUSTER", names: o.setup.names(env, otherClusters),
		accept: collect(&o.allowUnreachable), usage: "skip it if it is unreachable; nothing is deleted in this run"})
	f.StringSliceVar(&o.setup.forgetClusters, run.FlagForgetCluster, nil,
		"forget this `CLUSTER`, which is lost for good and no longer in the setup file, with its objects and data "+
			"(repeatable)")
	f.StringSliceVar(&o.pruneData, deploy.FlagPruneData, nil,
		"delete the objects in workspaces that the setup no longer has, with their data, of this `COMPONENT` "+
			"(repeatable)")
	f.StringSliceVar(&o.orphan, agents.FlagOrphan, nil,
		"remove this `AGENT` even if workspaces still have objects of its APIs; keep the copies on its cluster "+
			"(repeatable)")
	listUnder(f, GroupRisk, run.FlagForgetCluster, deploy.FlagPruneData, agents.FlagOrphan)
	f.StringSliceVar(&o.ignoreChecks, "ignore-checks", nil,
		"report failures of the check with this `ID` as warnings (repeatable; see kcpctl explain)")
	completeFlag(c, "ignore-checks", checkIDs)
	f.BoolVar(&o.writeInstallation, "write-installation", false,
		"write the ID of the installation into the setup file: commands then refuse any other installation")
	f.BoolVar(&o.newInstallation, deploy.FlagNewInstallation, false,
		"create the installation that the setup file names in metadata.installation: it does not exist yet")
	f.BoolVar(&o.foreground, "foreground", false, "with --local: keep running, and stop everything on Ctrl-C")
	f.BoolVar(&o.ephemeral, "ephemeral", false,
		"with --local: keep running, and on Ctrl-C or when the COMMAND ends, remove everything, as down --purge does")
	requireFlag(f, "local", "foreground", "ephemeral")
	excludeFlag(f, "dry-run", "foreground", "ephemeral", "write-installation") // it starts and writes nothing
	excludeFlag(f, "ephemeral", "foreground", "write-installation")            // nothing stays
	excludeFlag(f, "only", deploy.FlagPruneData)                               // it deletes nothing
	excludeFlag(f, "local", run.FlagForgetCluster)                             // this machine has no clusters
	return c
}

// replaceLost accepts that the record of one installation is lost. Its ID may be given several times.
func (o *upOptions) replaceLost(ids []string) error {
	for _, id := range ids {
		if known := o.setup.allowLostRecord; known != "" && id != known {
			return fmt.Errorf("a setup has one installation, and %s and %s are two: "+
				"give only the ID from the message that refuses the run", known, id)
		}
		o.setup.allowLostRecord = id
	}
	return nil
}

func (o *upOptions) validate() error {
	o.allowUnreachable, o.setup.forgetClusters = placeNames(o.allowUnreachable), placeNames(o.setup.forgetClusters)
	if err := o.validateEphemeral(); err != nil {
		return err
	}
	if len(o.only) > 0 && o.override.replaceAuthorities {
		return clierr.New(clierr.BadInput, "omit --only",
			"--%s must cover all components: those with new certificates and those with previous ones would not "+
				"trust each other",
			record.FlagReplaceAuthorities)
	}
	if o.writeInstallation {
		if err := setup.CheckEditable(o.setup.file); err != nil {
			return err
		}
	}
	for _, id := range o.ignoreChecks {
		if _, ok := check.Find(id); !ok {
			return unknownCheck(id)
		}
	}
	return o.applyFlags.validate()
}

func (o *upOptions) validateEphemeral() error {
	switch {
	case !o.ephemeral && len(o.command) > 0:
		return clierr.New(clierr.BadInput, "add --local --ephemeral, or see kcpctl kubeconfig --help",
			"a command after -- requires --ephemeral")
	case len(o.command) > 0 && o.env.events != nil:
		return clierr.New(clierr.BadInput, "omit --output", "--output and a command both write to stdout")
	}
	return nil
}

func (o *upOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	only, err := o.selected(s)
	if err == nil {
		err = o.checkUnreachable(s)
	}
	if err != nil {
		return err
	}
	o.env.notes(s.file)
	if o.dryRun == dryRunClient {
		return s.printObjects(ctx, func(o render.Object) bool {
			return len(only) == 0 || slices.Contains(only, o.Component)
		})
	}
	defer s.close()
	if err := o.connect(ctx, s, only); err != nil {
		return err
	}
	if o.ephemeral {
		if err := o.makeEphemeral(s); err != nil {
			return err
		}
	}
	res, err := upRun{
		header: o.header(s), wait: o.wait,
		options: deploy.UpOptions{
			PlanOptions: run.PlanOptions{
				Force: o.forceConflicts, PruneData: idsOfNames(o.pruneData), Orphan: idsOfNames(o.orphan),
			},
			Only: only, DryRun: o.dryRun == dryRunServer,
			AllowDataChange: o.override.dataChanges(), AllowReleaseChange: o.override.releaseChange,
			ReplaceAuthorities: o.override.replaceAuthorities, IgnoreChecks: o.ignoreChecks,
			NewInstallation: o.newInstallation, AllowTrustChange: o.override.trustChange,
			AllowRestoredRecord: o.override.restoredRecord,
			AllowUnreachable:    o.allowUnreachable, ForgetClusters: o.setup.forgetClusters,
		},
	}.run(ctx, s)
	if err == nil && len(o.command) == 0 && (o.env.events == nil || o.dryRun == dryRunServer) {
		err = o.printResult(ctx, s, res)
	}
	if o.writeInstallation && o.dryRun == dryRunNone {
		err = errors.Join(err, o.recordInstallation(ctx, s))
	}
	if err == nil {
		err = res.Refused // after what a dry run has shown
	}
	return o.remain(ctx, s, err)
}

// remain keeps a run in the foreground, and ends what it has begun. What has failed does not matter: a conflict, for
// instance, can also come after the start of all components.
func (o *upOptions) remain(ctx context.Context, s *session, err error) error {
	switch {
	case o.ephemeral:
		return o.endEphemeral(ctx, s, err)
	case o.foreground:
		return o.inForeground(ctx, s, err)
	}
	return err
}

// connect opens the runtime. It fails if the run could never finish.
func (o *upOptions) connect(ctx context.Context, s *session, only []topology.ID) error {
	if o.dryRun == dryRunServer {
		return s.connect(ctx)
	}
	if err := s.connectToApply(ctx); err != nil {
		return err
	}
	return requireDependencies(ctx, s, only, "add --only %s, or omit --only")
}

// selected are the components that --only selects, and the bases that hold their objects. Without --only there are
// none.
func (o *upOptions) selected(s *session) ([]topology.ID, error) {
	var out []topology.ID
	add := func(id topology.ID) {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	names, err := expandPlaces(s, o.only)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		switch known := selectableIDs(s); {
		case slices.Contains(known, name):
		case placeHint(s, name) != "":
			return nil, clierr.New(clierr.BadInput, placeHint(s, name), "there is no component %q", name)
		default:
			return nil, unknownName("component", name, known)
		}
		c := s.topology.Component(topology.ID(name))
		add(c.ID())
		for _, need := range c.Needs {
			if need.Kind() == topology.Base {
				add(need)
			}
		}
	}
	return out, nil
}

// checkUnreachable rejects clusters that do not exist, and the one without which no run can do anything.
func (o *upOptions) checkUnreachable(s *session) error {
	for _, name := range o.allowUnreachable {
		switch known := clusterNames(s); {
		case !slices.Contains(known, name):
			return unknownPlace(name, known)
		case name == s.topology.Home.Name:
			return clierr.New(clierr.BadInput, "omit it",
				"cluster %s cannot be left out: it has the root shard, the certificate authorities and the lock", name)
		}
	}
	for _, name := range o.setup.forgetClusters {
		if slices.Contains(clusterNames(s), name) {
			return clierr.New(clierr.BadInput, "remove its components and its entry in spec.clusters first",
				"cluster %s cannot be forgotten: the setup file has it", name)
		}
	}
	return nil
}

// requireDependencies fails if the selected components need others that are neither running nor selected: they would
// never become ready. The hint is a format for the one that is missing.
func requireDependencies(ctx context.Context, s *session, selected []topology.ID, hint string) error {
	var lost []plan.Unreachable
	if len(selected) > 0 {
		lost = s.runtime.Unreachable(ctx)
	}
	for _, id := range selected {
		for _, need := range s.topology.Component(id).Needs {
			_, unknown := plan.UnreachableIn(lost, s.topology.Component(need).Cluster.Name)
			if unknown || slices.Contains(selected, need) {
				continue // the component may well reach what kcpctl does not
			}
			st, err := s.runtime.State(ctx, s.topology.Component(need))
			if err != nil {
				return err
			}
			if !st.Ready && st.ReadyReplicas == 0 {
				return clierr.New(clierr.Failed, fmt.Sprintf(hint, need),
					"%s needs %s, which is not ready: %s; nothing was changed", id, need, st.Reason)
			}
		}
	}
	return nil
}

func (o *upOptions) header(s *session) string {
	return fmt.Sprintf("kcp %q %s → %s  (setup %s, %d components)", s.topology.Name, s.file.Setup.Spec.Version,
		s.runtime.Where(), s.file.Name, len(s.topology.Components))
}

// printResult prints the plan of a dry run, or what was done and what to do next.
func (o *upOptions) printResult(ctx context.Context, s *session, res *deploy.Result) error {
	w := o.env.Streams.Err
	p := res.Plan
	switch {
	case o.dryRun == dryRunServer:
		o.env.printPlan(p)
	case len(o.only) > 0:
		fmt.Fprintf(w, "\n%s of kcp %q: %s. No other component was changed.\n",
			strings.Join(o.only, ", "), s.topology.Name, p.Summary())
	case p.Count(plan.Unknown) > 0 && len(p.Unreachable) > 0:
		fmt.Fprintf(w, "\nkcp %q is up except on %s, which cannot be reached: %s. Nothing was deleted. When it "+
			"answers, run %s.\n",
			s.topology.Name, strings.Join(plan.ClustersOf(p.Unreachable), ", "), p.Summary(), o.setup.command("up"))
	case p.Empty():
		fmt.Fprintf(w, "\nkcp %q is up to date: 0 changes.\n", s.topology.Name)
	default:
		fmt.Fprintf(w, "\nkcp %q is up. Try:\n", s.topology.Name)
		for _, line := range o.nextCommands(s.topology) {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	if o.dryRun == dryRunServer {
		return nil
	}
	o.tellEncryption(s, res.PKI.State.Encryption)
	if id := res.Created(); id != "" && !o.writeInstallation && s.file.Setup.Metadata.Installation == "" {
		fmt.Fprintf(w, "\nThe installation is %s. To use %s for this installation only: %s --write-installation\n", id,
			s.file.Name, o.setup.command("up"))
	}
	found, err := addressesOf(ctx, s, net.DefaultResolver.LookupHost)
	found.print(w)
	return err
}

func (o *upOptions) recordInstallation(ctx context.Context, s *session) error {
	known, err := s.runtime.Record(ctx)
	if err != nil || known.Empty() || s.file.Setup.Metadata.Installation != "" {
		return err
	}
	edited, err := s.file.SetInstallation(known.Installation)
	if err == nil {
		err = s.file.Rewrite(o.setup.file, edited)
	}
	if err == nil {
		o.env.note(fmt.Sprintf("added metadata.installation: %s to %s", known.Installation, s.file.Name))
	}
	return err
}

// nextCommands are the commands to run next, in the order in which they make sense.
func (o *upOptions) nextCommands(t *topology.Topology) []string {
	program, flags, admin, forward := o.env.program(), o.setup.args("-f"), "", " --port-forward"
	if program == kcpctl {
		program = quote(o.env.Program) // such as bin/kcpctl
	}
	if k := t.OfKind(topology.Kubeconfig); len(k) > 0 {
		admin = " " + k[0].Name
	}
	if o.setup.local.enabled {
		forward = ""
	}
	return []string{
		program + " status" + flags,
		program + " kubeconfig" + admin + flags + forward + " -- kubectl get shards,workspaces",
		program + " kubeconfig" + admin + flags + " --merge",
	}
}

// printObjects prints the objects of the setup file that are wanted. It contacts no cluster.
func (s *session) printObjects(ctx context.Context, wanted func(render.Object) bool) error {
	desired, err := deploy.LoadDesired(ctx, s.topology, s.directory,
		deploy.DesiredOptions{Now: s.env.Now(), Offline: true})
	if err != nil {
		return err
	}
	objects, err := desired.Objects()
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if wanted(obj) {
			s.env.printRefs(obj.Ref())
		}
	}
	return nil
}
