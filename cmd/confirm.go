package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// The values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

var dryRuns = []string{dryRunClient, dryRunServer, dryRunNone}

// dryRunFlags are the flag of commands that can show what they would do.
type dryRunFlags struct{ dryRun string }

// addDryRun adds --dry-run, of which the client's only prints something. Without a value the flag means the server's.
func (f *dryRunFlags) addDryRun(c *cobra.Command, client string) {
	c.Flags().StringVar(&f.dryRun, "dry-run", dryRunNone,
		"client: print "+client+" without contacting a cluster; server: show what would change; none: change it")
	c.Flags().Lookup("dry-run").NoOptDefVal = dryRunServer
	completeFlag(c, "dry-run", fixed(dryRuns...))
}

func (f *dryRunFlags) validateDryRun() error {
	if !slices.Contains(dryRuns, f.dryRun) {
		return clierr.New(clierr.BadInput, "use --dry-run=client or --dry-run=server", "invalid dry run %q", f.dryRun)
	}
	return nil
}

// dry reports whether the command only shows what it would do.
func (f *dryRunFlags) dry() bool { return f.dryRun == dryRunClient || f.dryRun == dryRunServer }

// inClient reports whether it shows that without contacting a cluster.
func (f *dryRunFlags) inClient() bool { return f.dryRun == dryRunClient }

// removalFlags are the flags of commands that remove or replace something.
type removalFlags struct {
	dryRunFlags
	yes bool
}

func (f *removalFlags) addRemoval(c *cobra.Command, client string) {
	addYes(c.Flags(), &f.yes)
	f.addDryRun(c, client)
}

// removal is a removal or a replacement before its first write.
type removal struct {
	*removalFlags
	session *session
	// check fails if it cannot be done. It is not called with --yes, because the run itself checks the same under the
	// lock. Nil: the command has checked it.
	check func(context.Context) error
	// preview prints what would be removed.
	preview func(context.Context) error
	// question is the question for the confirmation.
	question string
}

// confirmed reports whether the command continues: the user has confirmed it. There is no question if another run holds
// the lock, or in a dry run, which shows the removal instead.
func (r removal) confirmed(ctx context.Context) (bool, error) {
	if r.yes && !r.dry() {
		return true, nil
	}
	if r.check != nil {
		if err := r.check(ctx); err != nil {
			return false, err
		}
	}
	if r.dry() {
		return false, r.preview(ctx)
	}
	if r.session.runtime != nil { // else only a directory is changed, which has no lock between runs
		if err := run.CheckLock(ctx, r.session.runtime); err != nil {
			return false, err
		}
	}
	return r.session.env.Streams.Confirm(ctx, r.question)
}

// confirmed reports whether --yes or the user confirms.
func (e *Env) confirmed(ctx context.Context, yes bool, question string) (bool, error) {
	if yes {
		return true, nil
	}
	return e.Streams.Confirm(ctx, question)
}

// preview shows what an edit changes in the setup file and, in a server dry run, what up would then change.
func (f *dryRunFlags) preview(ctx context.Context, before, after *session, r upRun) error {
	before.printEdit(after.file)
	if f.inClient() {
		return nil
	}
	if err := after.connect(ctx); err != nil {
		return err
	}
	defer after.close()
	return r.preview(ctx, after)
}

// preview prints what a run would change.
func (r upRun) preview(ctx context.Context, s *session) error {
	r.wait.output = ""
	r.options.DryRun = true
	res, err := r.run(ctx, s)
	if err != nil {
		return err
	}
	s.env.printPlan(res.Plan)
	return res.Refused
}

// printRefs prints objects in a client dry run.
func (e *Env) printRefs(all ...plan.Ref) {
	for _, ref := range all {
		e.print(fmt.Sprintf("%s (client dry run)\n", ref))
	}
}

func deletionOf(objects []plan.Item) *plan.Plan {
	p := &plan.Plan{}
	for _, it := range objects {
		it.Action = plan.Delete
		p.Items = append(p.Items, it)
	}
	return p
}
