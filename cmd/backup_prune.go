package cmd

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

type backupPruneOptions struct {
	env    *Env
	from   string
	keep   keepFlags
	dryRun bool
	yes    bool
}

func newBackupPruneCmd(env *Env) *cobra.Command {
	o := &backupPruneOptions{env: env}
	c := &cobra.Command{
		Use:   "prune",
		Short: "Delete old backups",
		Long: `Delete the backups that are neither among the newest of their installation nor younger than a number of
days. The newest backup that has all shards is always kept, and so is the newest that has the keys, too. Partial
backups do not count among the newest: those that are newer than all others count among the partial ones that lack
the same shards. The same is true of doubtful ones, which may lack the last writes of a shard. Backups that cannot be
used, because they were interrupted or lack files, do not count, and are not touched.`,
		Example: `  kcpctl backup prune --from ./backups --keep 10 --keep-days 14
  kcpctl backup prune --from ./backups --keep 10 --dry-run`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	f := c.Flags()
	f.StringVar(&o.from, "from", "", "directory of the backups, or a bucket: s3://BUCKET/PREFIX")
	o.keep.add(f)
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be deleted, and delete nothing")
	addYes(f, &o.yes)
	return c
}

func (o *backupPruneOptions) run(ctx context.Context) error {
	target, err := openTarget(o.env, "--from", o.from)
	if err != nil {
		return err
	}
	if err := o.keep.validate(); err != nil {
		return err
	}
	if !o.keep.given() {
		return clierr.New(clierr.BadInput, "such as --keep 10",
			"name how many backups to keep with --keep, --keep-days, or both")
	}
	found, err := archive.List(ctx, target)
	if err != nil {
		return err
	}
	all := found.Complete
	old := backup.Prunable(all, o.keep.rule(), o.env.Now())
	if len(old) == 0 {
		fmt.Fprintf(o.env.Streams.Err, "Nothing to delete: %s has %s.\n", target,
			gather.Count(len(all), "backup", "backups"))
		return nil
	}
	if o.dryRun {
		for _, m := range old {
			fmt.Fprintf(o.env.Streams.Out, "%s would be deleted (dry run)\n", m.Name)
		}
		return nil
	}
	yes, err := o.env.confirmed(ctx, o.yes,
		fmt.Sprintf("Delete %d of %d backups in %s? This cannot be undone.", len(old), len(all), target))
	if err != nil || !yes {
		return err
	}
	return backup.Prune(ctx, target, old, func(name string) { fmt.Fprintf(o.env.Streams.Out, "%s deleted\n", name) })
}

// keepFlags are the flags that say which backups are kept.
type keepFlags struct{ last, days int }

func (k *keepFlags) add(f *pflag.FlagSet) {
	f.IntVar(&k.last, "keep", 0, "how many of the newest to keep for each installation")
	f.IntVar(&k.days, "keep-days", 0, "also keep what is younger than this number of days")
}

func (k *keepFlags) validate() error {
	if k.last < 0 || k.days < 0 {
		return clierr.New(clierr.BadInput, "such as --keep 10", "--keep and --keep-days cannot be negative")
	}
	return nil
}

func (k *keepFlags) given() bool { return k.last > 0 || k.days > 0 }

func (k *keepFlags) rule() backup.Keep {
	days := min(k.days, int(math.MaxInt64/day)) // a longer time would be a negative one
	return backup.Keep{Last: k.last, Within: time.Duration(days) * day}
}
