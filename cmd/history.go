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
	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/ui"
)

// revisionOptions are those of commands that look at earlier setups.
type revisionOptions struct {
	setupOptions
	revision int
}

func (o *revisionOptions) addRevisionFlags(f *pflag.FlagSet, what string) {
	o.addFlags(f)
	f.IntVar(&o.revision, "revision", 0, what)
}

// attachTo is attach, with the setup of the revision in the place of the file's. The caller closes the runtime.
func (o *revisionOptions) attachTo(ctx context.Context) (*session, run.Runtime, error) {
	s, rt, err := o.attach()
	if err != nil || o.revision == 0 {
		return s, rt, err
	}
	if err := s.goBackTo(ctx, rt, o.revision); err != nil {
		rt.Close()
		return nil, nil, err
	}
	return s, rt, nil
}

// goBackTo puts an earlier setup in the place of the file's.
func (s *session) goBackTo(ctx context.Context, rt run.Runtime, number int) error {
	history, err := rt.History(ctx)
	if err != nil {
		return err
	}
	for _, r := range history {
		if r.Number != number {
			continue
		}
		f, err := setup.Parse(fmt.Sprintf("revision %d", number), r.Setup)
		if err != nil {
			return err
		}
		s.File = f
		if s.layout != nil {
			s.Topology = topology.BuildLocal(f.Setup, s.layout.Topology())
			return nil
		}
		s.Topology = topology.Build(f.Setup)
		return nil
	}
	return clierr.New(clierr.BadInput, "kcpctl history lists those that are remembered", "there is no revision %d", number)
}

type historyOptions struct {
	revisionOptions
	output string
}

func newHistoryCmd(g *globalOptions) *cobra.Command {
	o := &historyOptions{revisionOptions: revisionOptions{setupOptions: setupOptions{globalOptions: g}}}
	c := &cobra.Command{
		Use:   "history",
		Short: "List the setups that were applied, or print one",
		Long: `History lists the setups that were applied, the newest first. A run can be limited to components (--only,
add-shard, remove-shard). If the setup file had other changes then, the revision names the components: only they were applied.`,
		Example: `  kcpctl history
  kcpctl history --revision 3 > before.yaml`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.addRevisionFlags(c.Flags(), "print the setup of this revision")
	addOutput(c, &o.output, "", forPrograms()...)
	return c
}

// revisions are the result for programs, oldest first.
type revisions struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	Items      []plan.Revision `json:"items"`
}

func (o *historyOptions) run(ctx context.Context) error {
	s, rt, err := o.attachTo(ctx)
	if err != nil {
		return err
	}
	defer rt.Close()
	if o.revision != 0 {
		text, err := setup.Marshal(s.File.Setup)
		if err != nil {
			return err
		}
		_, err = o.Streams.Out.Write(text)
		return err
	}
	history, err := rt.History(ctx)
	if err != nil {
		return err
	}
	if o.output != "" {
		return encode(o.Streams.Out, o.output, revisions{
			APIVersion: v1alpha1.APIVersion, Kind: "RevisionList", Name: s.Topology.Name, Items: append([]plan.Revision{}, history...),
		})
	}
	if len(history) == 0 {
		fmt.Fprintf(o.Streams.Err, "kcp %q was never applied to %s.\n", s.Topology.Name, rt.Where())
		return nil
	}
	o.printHistory(history)
	return nil
}

// printHistory lists revisions, the newest first.
func (e *Env) printHistory(history []plan.Revision) {
	var rows [][]string
	for _, r := range slices.Backward(history) {
		rows = append(rows, []string{strconv.Itoa(r.Number), r.Time.UTC().Format(time.RFC3339), r.User, r.Version, onlyOf(r)})
	}
	ui.Table(e.Streams.Out, []string{"REVISION", "APPLIED", "BY", "KCPCTL", "ONLY"}, rows...)
}

// onlyOf are the components that a revision is limited to, in a few words: - means that the whole setup was applied.
func onlyOf(r plan.Revision) string {
	only := slices.DeleteFunc(slices.Clone(r.Only), func(id string) bool { return topology.ID(id).Kind() == topology.Base })
	if len(only) == 0 {
		return cmp.Or(strings.Join(r.Only, ","), "-")
	}
	shown := strings.Join(only[:min(mostNames, len(only))], ",")
	if more := len(only) - mostNames; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return shown
}
