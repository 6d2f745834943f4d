package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/engine/run/shards"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// movesFlags are the flags of commands that move workspaces between shards.
type movesFlags struct {
	concurrency number
	accept      []string
	timeout     time.Duration
	output      string
}

func (f *movesFlags) add(c *cobra.Command) {
	addConcurrency(c.Flags(), &f.concurrency)
	addUnverifiedCopy(c, &f.accept)
	addTimeout(c.Flags(), &f.timeout, "move the workspaces")
	addEvents(c, &f.output)
}

// addConcurrency adds the flag of a command that can move many workspaces.
func addConcurrency(flags *pflag.FlagSet, value *number) {
	*value = shards.DefaultConcurrency
	flags.Var(value, "concurrency", "how many workspaces to move at the same time")
}

func addUnverifiedCopy(c *cobra.Command, value *[]string) {
	addRisk(c, acceptance{risk: risk.UnverifiedCopy, value: "WORKSPACE", accept: collect(value),
		usage: "open it although its copy could not be compared with the original"})
}

func (f *movesFlags) options() shards.MoveOptions {
	return shards.MoveOptions{Concurrency: int(f.concurrency), AllowUnverifiedCopy: f.accept}
}

type moveOptions struct {
	env        *Env
	setup      setupFlags
	workspaces []string
	to         string
	recursive  bool
	removalFlags
	movesFlags
}

func newMoveCmd(env *Env) *cobra.Command {
	o := &moveOptions{env: env}
	c := &cobra.Command{
		Use:   "move WORKSPACE... --to SHARD",
		Short: "Move workspaces to another shard",
		Long: `Move workspaces to another shard, several at a time. A workspace is given by its path or by the ID of its
logical cluster. A workspace cannot be used while it is being moved, which takes some seconds. Then its contents are
compared with those before the move, and it is opened again. Workspaces below it stay where they are, unless
--recursive also moves them.

Before anything changes, the command checks that all moves are possible: kcp v0.32 or later with the feature gate
LogicalClusterMigration, a shard that is not cordoned and matches the location selectors of the workspaces, and
workspaces that are Ready. Otherwise it lists everything that is not.

If a move fails, the command begins no others, waits for those that are running, and reports where each workspace is.
Rerun the command to continue after a failure or an interruption.`,
		Example: `  kcpctl move root:team --to beta
  kcpctl move root:team --to beta --recursive --dry-run
  kcpctl move root:a root:b 2mc5xs36lrnz4t3j --to gamma --yes`,
		Args:              someArgs("workspace"),
		RunE:              withArgs(&o.workspaces, o.run),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	o.setup.add(f)
	f.StringVar(&o.to, "to", "", "move the workspaces to this `SHARD`")
	f.BoolVarP(&o.recursive, "recursive", "r", false, "also move all workspaces below them")
	completeFlag(c, "to", o.setup.names(env, shardNames))
	o.addRemoval(c, "the arguments")
	o.movesFlags.add(c)
	return c
}

func (o *moveOptions) validate() error {
	var missing error
	if o.to == "" {
		missing = clierr.New(clierr.BadInput, "add --to SHARD; kcpctl status lists the shards", "--to is required")
	}
	return errors.Join(missing, o.validateDryRun())
}

func (o *moveOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	o.env.Command += " --to " + o.to // the command that continues needs it
	if o.recursive {
		o.env.Command += " --recursive"
	}
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	if known := shardNames(s); !slices.Contains(known, o.to) {
		return unknownName("shard", o.to, known)
	}
	if o.inClient() {
		for _, w := range o.workspaces {
			o.env.print(fmt.Sprintf("workspace %s to shard %s (client dry run)\n", w, o.to))
		}
		return nil
	}
	return movesRun{
		removalFlags: &o.removalFlags, movesFlags: &o.movesFlags, choice: shards.Selected{
			Workspaces: o.workspaces, To: o.to, Recursive: o.recursive,
		},
		header: "move workspaces of", none: fmt.Sprintf("the workspaces are on shard %q.", o.to),
	}.run(ctx, s)
}

type movesRun struct {
	*removalFlags
	*movesFlags
	choice shards.Choice
	// header begins the header of the run, and none is printed if nothing moves.
	header, none string
}

// run shows the moves, asks, and makes them.
func (m movesRun) run(ctx context.Context, s *session) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.close()
	r := &shards.Moves{
		Topology: s.topology, Runtime: s.runtime, Choice: m.choice, MoveOptions: m.options(),
		Observe: s.reporter.observe, Now: s.env.Now, Timeout: m.timeout,
	}
	shown := m.dry() || !m.yes
	if shown {
		moves, err := r.Check(ctx)
		if err != nil {
			return err
		}
		m.print(s.env, moves)
		r.Confirmed = append([]shards.WorkspaceMove{}, moves...) // none is not all
	}
	yes, err := removal{
		removalFlags: m.removalFlags, session: s, preview: func(context.Context) error { return nil },
		question: fmt.Sprintf("Move %s of kcp %q? Each cannot be used for some seconds.",
			gather.Count(len(r.Confirmed), "workspace", "workspaces"), s.topology.Name),
	}.confirmedMoves(ctx, len(r.Confirmed) > 0)
	if err != nil || !yes {
		return err
	}
	end := s.reporter.begin(ctx, fmt.Sprintf("%s kcp %q", m.header, s.topology.Name))
	defer end()
	return r.Run(ctx)
}

// confirmedMoves is confirmed. It asks nothing if no workspace moves, and a run only completes earlier ones.
func (r removal) confirmedMoves(ctx context.Context, any bool) (bool, error) {
	if !any && !r.dry() {
		return true, nil
	}
	return r.confirmed(ctx)
}

func (m movesRun) print(env *Env, moves []shards.WorkspaceMove) {
	if len(moves) == 0 {
		env.note(m.none)
		return
	}
	rows := [][]string{{"WORKSPACE", "FROM", "TO"}}
	for _, move := range moves {
		rows = append(rows, []string{move.Workspace, move.From, move.To})
	}
	if env.events != nil {
		env.events.note(gather.Count(len(moves), "workspace", "workspaces")+" to move", rows...)
		return
	}
	ui.Table(env.Streams.Out, rows[0], rows[1:]...)
}
