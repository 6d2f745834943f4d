package cmd

import (
	"bytes"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/engine/status"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// watchInterval is the pause between two refreshes of kcpctl status --watch.
const watchInterval = 2 * time.Second

type statusOptions struct {
	env    *Env
	setup  setupFlags
	output string
	watch  bool
	all    bool
	drift  bool
}

func newStatusCmd(env *Env) *cobra.Command {
	o := &statusOptions{env: env}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the components, and why they are not ready",
		Long: `Show the state of each component and, if it is not ready, why; the registered shards and their
number of logical clusters; how many resources each agent has published, and how many shards answer it;
the certificate that expires first; and whether the running setup differs from the setup file. It names the
run that changes the setup now, and the last one if it has not finished. The last line is the next command.

Exit codes: 0 everything is ready, 1 failed, 2 invalid flags or setup file, 3 something is not ready.`,
		Example: `  kcpctl status --watch
  kcpctl status -o json | jq '.components[] | select(.ready | not)'`,
		Args: noArgs,
		RunE: withoutArgs(opened(env, &o.setup, o.run)),
	}
	f := c.Flags()
	o.setup.add(f)
	addOutput(c, &o.output, "", machineFormats...)
	f.BoolVarP(&o.watch, "watch", "w", false, "refresh until you press Ctrl-C")
	addAll(f, &o.all, "component", "state")
	f.BoolVar(&o.drift, "drift", true, "compare the running setup with the setup file")
	return c
}

func (o *statusOptions) run(ctx context.Context, s *session) error {
	out := *o.env.Streams.Out
	out.Live = out.Live && o.watch // only --watch clears the terminal
	screen := &ui.Screen{Stream: &out}
	for shown := false; ; {
		st, err := status.Collect(ctx, s.topology, s.runtime, o.env.Now(), status.Options{Drift: o.drift})
		if err == nil {
			shown = true
			if err := o.show(st, screen); err != nil {
				return err
			}
		}
		switch {
		case o.watch && ctx.Err() != nil:
			return nil
		case err != nil && o.watch && shown: // what runs can be read again after a while
			o.env.note(firstLine(err.Error()))
		case err != nil:
			return err
		case !o.watch && st.State == status.NotInstalled && s.isHere() != "":
			o.env.note(s.isHere())
			return silent(clierr.NotReady)
		case !o.watch && !st.Ready:
			return silent(clierr.NotReady)
		case !o.watch:
			return nil
		}
		if poll.Pause(ctx, watchInterval) != nil {
			return nil
		}
	}
}

// show prints the status.
func (o *statusOptions) show(st *status.Status, screen *ui.Screen) error {
	o.setNextCommands(st)
	var text bytes.Buffer
	if o.output != "" {
		if err := encode(&text, o.output, st); err != nil {
			return err
		}
	} else {
		out := *o.env.Streams.Out
		out.Writer = &text
		out.Tree(o.tree(st))
	}
	return screen.Show(text.String())
}
