package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/engine/backup/content"
	"github.com/kcpctl/kcpctl/internal/engine/backup/live"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

type restoreRepairOptions struct {
	env           *Env
	setup         setupFlags
	adopt         bool
	deleteOrphans bool
	deleteMissing bool
	dryRun        bool
	yes           bool
	timeout       time.Duration
	output        string
}

func newRestoreRepairCmd(env *Env) *cobra.Command {
	o := &restoreRepairOptions{env: env}
	c := &cobra.Command{
		Use:   "repair",
		Short: "Find workspaces that the shards of a running kcp do not agree about, and repair them",
		Long: `Compare the shards of a running kcp. A workspace is an object on one shard, and its content is a logical
cluster on another: when shards were restored from different moments, one of the two can be without the
other. kcp does not repair that.

Without flags, and with --dry-run, repair lists what it finds, and changes nothing. The exit code is 1 if
it finds something. It reads all shards, and refuses if one does not answer.`,
		Example: `  kcpctl restore repair
  kcpctl restore repair --adopt --delete-missing --dry-run
  kcpctl restore repair --adopt --delete-missing`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	f := c.Flags()
	o.setup.add(f)
	f.BoolVar(&o.adopt, "adopt", false,
		"create the Workspaces of logical clusters that have lost them: their content is available again")
	f.BoolVar(&o.deleteOrphans, "delete-orphans", false,
		"delete logical clusters that have lost their Workspaces, with everything in them")
	f.BoolVar(&o.deleteMissing, "delete-missing", false,
		"delete Workspaces whose logical clusters do not exist")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be repaired, and change nothing")
	addYes(f, &o.yes)
	addTimeout(f, &o.timeout, "repair the workspaces")
	addOutput(c, &o.output, "", machineFormats...)
	excludeFlag(f, "adopt", "delete-orphans")
	return c
}

func (o *restoreRepairOptions) run(ctx context.Context) error {
	s, err := openSetup(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	state, err := s.loadPKI(ctx)
	if err != nil {
		return err
	}
	connect := func(c *topology.Component) (*kcp.Client, error) {
		return kcp.Connect(s.runtime, c, state, o.env.Now())
	}
	reader := &live.Reader{Topology: s.topology, Connect: connect, Pause: live.Pause}
	found, err := reader.Find(ctx)
	if err != nil {
		return clierr.Also(err, "repair reads all shards; kcpctl status shows their state")
	}
	r := &backup.Repair{
		Reader: reader, Runtime: s.runtime, Actions: o.actions(), Observe: s.reporter.observe, Now: o.env.Now,
	}
	if err := o.print(found.Tears, r); err != nil {
		return err
	}
	for _, t := range found.Tears {
		if _, chosen := r.Of(t); chosen {
			r.Shown = append(r.Shown, t)
		}
	}
	if o.dryRun && len(r.Shown) > 0 {
		return silent(clierr.Failed)
	}
	if len(r.Shown) > 0 {
		err = o.repair(ctx, s, r)
	}
	if err == nil && len(found.Tears) > len(r.Shown) {
		return silent(clierr.Failed)
	}
	return err
}

func (o *restoreRepairOptions) actions() []backup.Action {
	var out []backup.Action
	for _, a := range []struct {
		chosen bool
		action backup.Action
	}{{o.adopt, backup.Adopt}, {o.deleteOrphans, backup.DeleteOrphan}, {o.deleteMissing, backup.DeleteMissing}} {
		if a.chosen {
			out = append(out, a.action)
		}
	}
	return out
}

func (o *restoreRepairOptions) repair(ctx context.Context, s *session, r *backup.Repair) error {
	question := fmt.Sprintf("Repair %s of kcp %q (%s)? Deleted objects cannot be restored without a backup.",
		gather.Count(len(r.Shown), "workspace", "workspaces"), s.topology.Name, s.runtime.Where())
	if yes, err := o.env.confirmed(ctx, o.yes, question); err != nil || !yes {
		return cmp.Or(err, silent(clierr.Failed))
	}
	ctx, cancel := limited(ctx, o.timeout, "repaired")
	defer cancel()
	end := s.reporter.begin(ctx, fmt.Sprintf("repair kcp %q", s.topology.Name))
	defer end()
	return r.Run(ctx)
}

// tearList is what repair finds, in machineFormats.
type tearList struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Items      []content.Tear `json:"items"`
}

// print lists the tears, each with its effect and the action.
func (o *restoreRepairOptions) print(tears []content.Tear, r *backup.Repair) error {
	out := o.env.Streams.Out
	if o.output != "" {
		return encode(out, o.output, tearList{v1alpha1.APIVersion, "TearList", append([]content.Tear{}, tears...)})
	}
	for _, t := range tears {
		next := t.Repair
		if action, chosen := r.Of(t); chosen {
			next = string(action)
		}
		printTear(out, t, "now", next)
	}
	if len(tears) == 0 {
		fmt.Fprintln(out, "All shards agree.")
	}
	return nil
}

// printTear prints something that does not fit together. When is when the effect begins.
func printTear(out *ui.Stream, t content.Tear, when, repair string) {
	where := t.Path
	if len(t.Shards) > 0 {
		where += " on " + strings.Join(t.Shards, ", ")
	}
	fmt.Fprintf(out, "%s %s: %s\n    %s: %s\n    repair: %s\n", out.Cross(), where, t.Message, when, t.Effect, repair)
}
