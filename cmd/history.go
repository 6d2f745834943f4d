package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/gather"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/ui"
)

type historyOptions struct {
	env      *Env
	setup    setupFlags
	revision int
	output   string
}

func newHistoryCmd(env *Env) *cobra.Command {
	o := &historyOptions{env: env}
	c := &cobra.Command{
		Use:   "history",
		Short: "List the setups that were applied, or print one",
		Long: `History lists the setups that were applied, newest first. A run can be limited to some components
(--only, add-shard, remove-shard). If the setup file also had other changes at that time, ONLY lists the
components that were applied, and the clusters that were left out because they could not be reached.`,
		Example: `  kcpctl history
  kcpctl history --revision 3 > previous.yaml`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.setup.add(c.Flags())
	c.Flags().IntVar(&o.revision, "revision", 0, "print the setup of this revision")
	addOutput(c, &o.output, "", machineFormats...)
	return c
}

// revisionList is the result in machineFormats, oldest revision first.
type revisionList struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	Items      []plan.Revision `json:"items"`
}

func (o *historyOptions) run(ctx context.Context) error {
	s, err := openSetup(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	if o.revision != 0 {
		if err := s.useRevision(ctx, o.revision); err != nil {
			return err
		}
		return printSetup(o.env, s.file)
	}
	history, err := s.runtime.History(ctx)
	if err != nil {
		return err
	}
	if o.output != "" {
		return encode(o.env.Streams.Out, o.output, revisionList{
			APIVersion: v1alpha1.APIVersion, Kind: "RevisionList", Name: s.topology.Name,
			Items: append([]plan.Revision{}, history...),
		})
	}
	if len(history) == 0 {
		fmt.Fprintf(o.env.Streams.Err, "kcp %q was never applied to %s.\n", s.topology.Name, s.runtime.Where())
		return nil
	}
	printHistory(o.env.Streams.Out, history)
	return nil
}

// useRevision makes a setup that was applied before the setup of the session.
func (s *session) useRevision(ctx context.Context, number int) error {
	history, err := s.runtime.History(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(history, func(r plan.Revision) bool { return r.Number == number })
	if at < 0 {
		return clierr.New(clierr.BadInput, "to list the revisions, run "+s.flags.command("history"),
			"there is no revision %d", number)
	}
	f, err := setup.Parse(fmt.Sprintf("revision %d", number), history[at].Setup)
	if err != nil {
		return err
	}
	return s.use(f)
}

// printHistory lists revisions, newest first.
func printHistory(out *ui.Stream, history []plan.Revision) {
	var rows [][]string
	for _, r := range slices.Backward(history) {
		rows = append(rows, []string{
			strconv.Itoa(r.Number), r.Time.UTC().Format(time.RFC3339), r.User, r.Version, onlyColumn(r),
		})
	}
	ui.Table(out, []string{"REVISION", "APPLIED", "BY", "KCPCTL", "ONLY"}, rows...)
}

// maxScopeNames is how many components the table lists for a run with --only.
const maxScopeNames = 5

// onlyColumn lists the components that a revision is limited to, and the clusters that it left out; - means that the whole
// setup was applied.
func onlyColumn(r plan.Revision) string {
	if len(r.Without) > 0 {
		without := "without " + strings.Join(prefixed(clusterPrefix, r.Without), ",")
		if len(r.Only) == 0 {
			return without
		}
		return onlyColumn(plan.Revision{Only: r.Only}) + " " + without
	}
	only := slices.DeleteFunc(slices.Clone(r.Only), func(id string) bool { return topology.ID(id).Kind() == topology.Base })
	if len(only) == 0 {
		return cmp.Or(strings.Join(r.Only, ","), "-")
	}
	return gather.Few(only, maxScopeNames, ",")
}
