package cmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
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
	var rows [][]string
	for _, r := range slices.Backward(history) {
		rows = append(rows, []string{strconv.Itoa(r.Number), r.Time.UTC().Format(time.RFC3339), r.User, r.Version})
	}
	ui.Table(o.Streams.Out, []string{"REVISION", "APPLIED", "BY", "KCPCTL"}, rows...)
	return nil
}
