package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/engine/run/shards"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

type rebalanceOptions struct {
	env      *Env
	setup    setupFlags
	within   int
	maxMoves int
	dryRun   bool
	removalFlags
	movesFlags
}

// defaultWithin is how much shards may differ from the mean by default, in percent.
const defaultWithin = 10

func newRebalanceCmd(env *Env) *cobra.Command {
	o := &rebalanceOptions{env: env}
	c := &cobra.Command{
		Use:   "rebalance",
		Short: "Move workspaces until all shards have about as many",
		Long: fmt.Sprintf(`Count the workspaces on each shard, and make the fewest moves after which each shard has as
many as the mean of all shards, within %d percent or the value of --within. The bounds are rounded away from the mean:
with 36 workspaces on three shards, each has 10 to 14 of them. If location selectors prevent that, they come as close
to it as possible.

The root shard takes part like all others. A cordoned shard does not: it neither loses nor gets workspaces, and does
not count. Workspaces that cannot move now, such as inactive ones, count on their shard.

The workspaces move as with kcpctl move. Rerun the command to continue after a failure or an interruption. With
--dry-run, it only lists the moves.`, defaultWithin),
		Example: `  kcpctl rebalance --dry-run
  kcpctl rebalance --max-moves 20 --yes
  kcpctl rebalance --within 5`,
		Args:              noArgs,
		RunE:              withoutArgs(o.run),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	o.setup.add(f)
	f.IntVar(&o.within, "within", defaultWithin, "how much a shard may differ from the mean, in `PERCENT`")
	f.IntVar(&o.maxMoves, "max-moves", 0, "the most workspaces to move (0 means no limit)")
	addYes(f, &o.yes)
	f.BoolVar(&o.dryRun, "dry-run", false, "only list what would move")
	o.movesFlags.add(c)
	return c
}

func (o *rebalanceOptions) validate() error {
	var errs []error
	if o.within < 0 || o.within > 100 {
		errs = append(errs, clierr.New(clierr.BadInput, "use a number from 0 to 100",
			"invalid percentage %d of --within", o.within))
	}
	if o.maxMoves < 0 {
		errs = append(errs, clierr.New(clierr.BadInput, "use a number of workspaces, or 0 for no limit",
			"negative --max-moves %d", o.maxMoves))
	}
	return errors.Join(errs...)
}

func (o *rebalanceOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.dryRun {
		o.removalFlags.dryRun = dryRunServer
	}
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	return movesRun{
		removalFlags: &o.removalFlags, movesFlags: &o.movesFlags,
		choice: shards.Balanced{Within: o.within, MaxMoves: o.maxMoves},
		header: "rebalance", none: "nothing moves: the shards are balanced, as far as workspaces may move.",
	}.run(ctx, s)
}
