package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/engine/usage"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

type capacityOptions struct {
	env    *Env
	setup  setupFlags
	output string
}

func newCapacityCmd(env *Env) *cobra.Command {
	o := &capacityOptions{env: env}
	c := &cobra.Command{
		Use:   "capacity",
		Short: "Show how full the shards are, and what to do next",
		Long: fmt.Sprintf(`Compare what each shard and the cache server use with their limits: the memory with
the limit of the container, the database with the quota of etcd, the workspaces with the number that the
load tests of kcp consider the most for a shard, and the objects in the cache server in the same way. A
component is full from %.0f percent on.

Exit codes: 0 no component is full, 1 failed, or one is full or cannot be measured, 2 invalid flags or setup
file.`, 100*usage.Full),
		Example: `  kcpctl capacity
  kcpctl capacity -o json | jq '.items[] | select(.next)'`,
		Args: noArgs,
		RunE: withoutArgs(opened(env, &o.setup, o.run)),
	}
	o.setup.add(c.Flags())
	addOutput(c, &o.output, "", machineFormats...)
	return c
}

func (o *capacityOptions) run(ctx context.Context, s *session) error {
	reader, err := s.usage(ctx)
	if err != nil {
		return err
	}
	measured, err := reader.Read(ctx)
	if err != nil {
		return err
	}
	all := usage.Capacities(measured)
	if o.output != "" {
		err = encode(o.env.Streams.Out, o.output, listOf("CapacityList", s.topology.Name, all))
	} else {
		o.print(all)
	}
	if err == nil && slices.ContainsFunc(all, func(c usage.Capacity) bool { return !c.Room() }) {
		return silent(clierr.Failed)
	}
	return err
}

func (o *capacityOptions) print(all []usage.Capacity) {
	out := o.env.Streams.Out
	var rows [][]string
	for _, c := range all {
		full := "-"
		var by []string
		if len(c.Shares) > 0 {
			full = fmt.Sprintf("%.0f%%", 100*c.Used())
		}
		for _, s := range c.Shares {
			by = append(by, fmt.Sprintf("%s %s", s.Of, s.Text))
		}
		if c.Next != "" {
			full = out.Red(full)
		}
		rows = append(rows, []string{string(c.Component), full, strings.Join(by, ", ")})
	}
	ui.Table(out, []string{"COMPONENT", "FULL", "BY"}, rows...)
	for _, c := range all {
		if c.Reason != "" {
			fmt.Fprintln(out, out.Yellow(fmt.Sprintf("%s: %s", c.Component, firstLine(c.Reason))))
		}
		if c.Next != "" {
			fmt.Fprintln(out, out.Text(fmt.Sprintf("%s is full: %s", c.Component, o.env.nextSteps(c.Next))))
		}
	}
}
