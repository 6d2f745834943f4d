package cmd

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// allLines is the value of --tail for all lines, as in kubectl.
const allLines = -1

type logsOptions struct {
	env        *Env
	setup      setupFlags
	components componentArgs
	logs       run.LogOptions
	tail       int64
	sinceTime  string
}

func newLogsCmd(env *Env) *cobra.Command {
	o := &logsOptions{env: env}
	c := &cobra.Command{
		Use:   "logs COMPONENT...",
		Short: "Print the logs of components",
		Long: `Print the logs of all containers in the pods of components, or of their processes on this
machine. If there is more than one component, each line begins with its component, and the lines are in
the order of their times; if a component has more than one container, each line also has its pod and
container. -f follows the logs until you press Ctrl-C, including the logs of pods and processes that start
later, as in a rolling update.

On this machine, the time of a line is the one that the component has written into it. A line without a
time, such as the next lines of a panic, has the time of the line before.`,
		Example: `  kcpctl logs shard/alpha -f
  kcpctl logs --all --since 10m --timestamps
  kcpctl logs root-shard front-proxy/main --tail 100`,
		Args:              noFiles,
		RunE:              withArgs(&o.components.names, o.run),
		ValidArgsFunction: completeArgs(0, o.setup.names(env, componentIDs)),
	}
	f := c.Flags()
	o.setup.addWithShorthand(f, "") // -f follows, as in kubectl
	o.components.add(f, "print the logs of all components")
	f.BoolVarP(&o.logs.Follow, "follow", "f", false, "follow the logs")
	f.BoolVarP(&o.logs.Previous, "previous", "p", false, "print the logs of the previous container")
	f.Int64Var(&o.tail, "tail", allLines, "print only this many of the last lines of each container (-1 means all)")
	addDuration(f, &o.logs.Since, "since", 0, "print only lines newer than this, such as 5s, 2m or 3h")
	f.StringVar(&o.sinceTime, "since-time", "", "print only lines after this time, such as 2006-01-02T15:04:05Z")
	f.BoolVar(&o.logs.Timestamps, "timestamps", false, "print the time of each line before it")
	excludeFlag(f, "since-time", "since")
	return c
}

func (o *logsOptions) complete() error {
	switch {
	case o.tail < allLines:
		return clierr.New(clierr.BadInput, "use 0 or more, or -1 for all lines", "invalid --tail %d", o.tail)
	case o.tail >= 0:
		o.logs.Tail = &o.tail
	}
	switch {
	case o.logs.Since < 0:
		return clierr.New(clierr.BadInput, "use a duration such as 10m", "invalid --since %s", o.logs.Since)
	case o.sinceTime == "":
		return nil
	}
	at, err := time.Parse(time.RFC3339, o.sinceTime)
	if err != nil {
		return clierr.New(clierr.BadInput, "use a time such as 2006-01-02T15:04:05Z",
			"invalid --since-time %q", o.sinceTime)
	}
	o.logs.SinceTime = at
	return nil
}

func (o *logsOptions) run(ctx context.Context) error {
	if err := o.complete(); err != nil {
		return err
	}
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	selected, err := o.components.selected(s)
	if err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.close()
	if len(selected) == 1 {
		return s.runtime.Logs(ctx, s.topology.Component(selected[0]), o.logs, o.env.Streams.Out)
	}
	return o.printAll(ctx, s, selected)
}

// printAll prints the logs of several components: in the order of their times, or those that are followed as they come.
// A component without logs does not hide the logs of the others.
func (o *logsOptions) printAll(ctx context.Context, s *session, selected []topology.ID) error {
	out := o.env.Streams.Out
	names := mapped(selected, func(id topology.ID) string { return string(id) })
	prefixes := out.Prefixes(names)
	if !o.logs.Follow {
		return o.merge(ctx, s, selected, prefixes)
	}
	var g errgroup.Group
	errs := make([]error, len(selected))
	lines := ui.NewLines(out)
	for i, id := range selected {
		g.Go(func() error {
			to := lines.From(prefixes[i])
			errs[i] = errors.Join(s.runtime.Logs(ctx, s.topology.Component(id), o.logs, to), to.Close())
			if errs[i] != nil {
				s.reporter.note(firstLine(errs[i].Error()))
			}
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(errs...)
}

// merge prints logs in the order of their times.
func (o *logsOptions) merge(ctx context.Context, s *session, selected []topology.ID, prefixes []string) error {
	options := o.logs
	options.Timestamps = true
	errs := make([]error, len(selected))
	logs := make([]io.Reader, len(selected))
	for i, id := range selected {
		from, to := io.Pipe()
		defer from.Close() // a writer ends
		logs[i] = from
		go func() {
			errs[i] = s.runtime.Logs(ctx, s.topology.Component(id), options, to)
			_ = to.Close()
		}()
	}
	if err := ui.Merge(o.env.Streams.Out, prefixes, logs, o.logs.Timestamps); err != nil {
		return err
	}
	return errors.Join(errs...)
}
