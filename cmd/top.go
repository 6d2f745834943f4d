package cmd

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/usage"
	"github.com/kcpctl/kcpctl/internal/kit/bytesize"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// measured is the time between the two readings of the metrics.
const measured = 5 * time.Second

type topOptions struct {
	env    *Env
	setup  setupFlags
	output string
	watch  bool
}

func newTopCmd(env *Env) *cobra.Command {
	o := &topOptions{env: env}
	c := &cobra.Command{
		Use:   "top",
		Short: "Show what the servers use: requests, latency, CPU, memory, etcd",
		Long: `Read the metrics of each shard, front-proxy, cache server and server of virtual workspaces
twice, 5 seconds apart, through the connections that kcpctl has: Prometheus is not necessary. Of a
component with several replicas, one is measured. P99 is the latency that 99 percent of the requests did not exceed,
without watches. ETCD is the size of the database, and the quota at which etcd accepts no more writes.`,
		Example: `  kcpctl top
  kcpctl top --watch
  kcpctl top workspaces`,
		Args: noArgs,
		RunE: withoutArgs(opened(env, &o.setup, o.run)),
	}
	f := c.Flags()
	o.setup.add(f)
	addOutput(c, &o.output, "", machineFormats...)
	f.BoolVarP(&o.watch, "watch", "w", false, "refresh until you press Ctrl-C")
	c.AddCommand(newTopWorkspacesCmd(env))
	return c
}

func (o *topOptions) run(ctx context.Context, s *session) error {
	reader, err := s.usage(ctx)
	if err != nil {
		return err
	}
	out := *o.env.Streams.Out
	out.Live = out.Live && o.watch // only --watch clears the terminal
	screen := &ui.Screen{Stream: &out}
	for {
		all, err := reader.Read(ctx)
		switch {
		case o.watch && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := o.show(screen, s, all); err != nil || !o.watch {
			return err
		}
		if !slices.ContainsFunc(all, func(u usage.Component) bool { return u.Reason == "" }) {
			_ = poll.Pause(ctx, measured) // the reader has not waited between two readings
		}
		reader.Left = s.runtime.Unreachable(ctx) // a cluster can answer again
		s.runtime.LeaveOut(reader.Left)
	}
}

// usage returns what reads the metrics of a running setup.
func (s *session) usage(ctx context.Context) (*usage.Reader, error) {
	lost, state, err := s.readable(ctx)
	if err != nil {
		return nil, err
	}
	return &usage.Reader{
		Topology: s.topology, Left: lost, After: func() <-chan time.Time { return time.After(measured) },
		Connect: func(c *topology.Component) (*kcp.Client, error) {
			return kcp.Connect(s.runtime, c, state, s.env.Now())
		},
	}, nil
}

// readable returns the PKI of a running setup, for a command that only reads, and the clusters that cannot be reached.
func (s *session) readable(ctx context.Context) ([]plan.Unreachable, *pki.State, error) {
	lost, err := s.leaveOut(ctx)
	if err != nil {
		return nil, nil, err
	}
	state, err := s.loadPKI(ctx)
	return lost, state, err
}

func (o *topOptions) show(screen *ui.Screen, s *session, all []usage.Component) error {
	var text bytes.Buffer
	if o.output != "" {
		if err := encode(&text, o.output, listOf("UsageList", s.topology.Name, all)); err != nil {
			return err
		}
		return screen.Show(text.String())
	}
	out := *o.env.Streams.Out
	out.Writer = &text
	ui.Table(&out, []string{"COMPONENT", "REQUESTS/S", "P99", "CPU", "MEMORY", "WORKSPACES", "ETCD"},
		mapped(all, usageCells)...)
	for _, u := range all {
		if u.Reason != "" {
			fmt.Fprintln(&out, out.Yellow(fmt.Sprintf("%s: %s", u.Component, firstLine(u.Reason))))
		}
	}
	return screen.Show(text.String())
}

// usageCells returns the cells of a component. What is not known is a dash.
func usageCells(u usage.Component) []string {
	name := string(u.Component)
	if u.Replicas > 1 {
		name += fmt.Sprintf(" (1 of %d)", u.Replicas)
	}
	cells := []string{name, "-", "-", "-", "-", "-", "-"}
	if u.RequestsPerSecond != nil {
		cells[1] = fmt.Sprintf("%.1f", *u.RequestsPerSecond)
	}
	if u.P99 != nil {
		cells[2] = time.Duration(*u.P99 * float64(time.Second)).Round(time.Millisecond).String()
	}
	if u.CPU != nil {
		cells[3] = fmt.Sprintf("%.0fm", 1000**u.CPU)
	}
	if u.Memory != nil {
		cells[4] = ofLimit(*u.Memory, u.MemoryLimit)
	}
	if u.LogicalClusters != nil {
		cells[5] = strconv.Itoa(*u.LogicalClusters)
	}
	if u.Database != nil {
		cells[6] = ofLimit(*u.Database, u.Quota)
	}
	return cells
}

// ofLimit formats a number of bytes, with its limit if there is one.
func ofLimit(n, limit int64) string {
	if limit == 0 {
		return bytesize.Format(n)
	}
	return bytesize.Of(n, limit)
}
