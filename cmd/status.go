package cmd

import (
	"bytes"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/status"
	"github.com/kcpctl/kcpctl/internal/ui"
)

// watchPause is how long kcpctl status --watch waits between two looks.
const watchPause = 2 * time.Second

type statusOptions struct {
	setupOptions
	output string
	watch  bool
	all    bool
	drift  bool
}

func newStatusCmd(g *globalOptions) *cobra.Command {
	o := &statusOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the components, and why they are not ready",
		Long: `Status shows the components, what runs, and why it is not ready; the registered shards and how many logical clusters live
there; which certificate expires first; and whether anything differs from the setup file.

Exit codes: 0 all is ready, 1 failed, 2 bad flags or setup file, 3 something is not ready.`,
		Example: `  kcpctl status --watch
  kcpctl status -o json | jq '.components[] | select(.ready | not)'`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.addFlags(c.Flags())
	addOutput(c, &o.output, "", forPrograms()...)
	c.Flags().BoolVarP(&o.watch, "watch", "w", false, "look again and again, until you press Ctrl-C")
	c.Flags().BoolVarP(&o.all, "all", "A", false, "list components that are alike one by one")
	c.Flags().BoolVar(&o.drift, "drift", true, "compare what runs with the setup file")
	return c
}

func (o *statusOptions) run(ctx context.Context) error {
	s, rt, err := o.attach()
	if err != nil {
		return err
	}
	defer rt.Close()
	screen := &ui.Screen{Stream: o.Streams.Out}
	for {
		st, err := o.show(ctx, s, rt, screen)
		switch {
		case o.watch && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !o.watch && !st.Ready:
			return silent(clierr.NotReady)
		case !o.watch:
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPause):
		}
	}
}

// show collects the status and prints it.
func (o *statusOptions) show(ctx context.Context, s *session, rt run.Runtime, screen *ui.Screen) (*status.Status, error) {
	st, err := status.Collect(ctx, s.Topology, rt, o.Now(), status.Options{Drift: o.drift})
	if err != nil {
		return nil, err
	}
	o.goOn(st)
	var text bytes.Buffer
	if o.output != "" {
		err = encode(&text, o.output, st)
	} else {
		(&ui.Stream{Writer: &text, Style: o.Streams.Out.Style}).Tree(o.tree(st))
	}
	if err != nil {
		return nil, err
	}
	return st, screen.Show(text.String())
}

// goOn says how rotations that are under way go on.
func (o *statusOptions) goOn(st *status.Status) {
	for i, r := range st.Rotations {
		st.Rotations[i].Next = o.rotateCommand(r.Rotations)
		if r.Phase == pki.PhaseSwitch && !r.OfServiceAccount() {
			st.Rotations[i].Next += " --finish"
		}
	}
}
