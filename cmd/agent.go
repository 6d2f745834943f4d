package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

func newAgentCmd(env *Env) *cobra.Command {
	return newGroup("agent", "Add, list and remove agents, which publish APIs of clusters in workspaces",
		newAgentAddCmd(env), newAgentListCmd(env), newAgentRemoveCmd(env))
}

func agentNames(s *session) []string {
	return mapped(s.file.Setup.Spec.Agents, func(a v1alpha1.Agent) string { return a.Name })
}

// agentIDs are the agents of a setup as components.
func agentIDs(s *session) []string {
	return mapped(agentNames(s), func(name string) string { return string(topology.IDOf(topology.Agent, name)) })
}

type agentListOptions struct {
	env   *Env
	setup setupFlags
}

func newAgentListCmd(env *Env) *cobra.Command {
	o := &agentListOptions{env: env}
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the agents of the setup file, and what they publish",
		Example: "  kcpctl agent list",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return o.run() },
	}
	o.setup.add(c.Flags())
	return c
}

func (o *agentListOptions) run() error {
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	if len(s.file.Setup.Spec.Agents) == 0 {
		o.env.noneFound("agents", s.file.Name)
		return nil
	}
	var rows [][]string
	for i := range s.file.Setup.Spec.Agents {
		a := &s.file.Setup.Spec.Agents[i]
		var kinds []string
		for _, k := range agent.Kinds(a) {
			kinds = append(kinds, k.GroupKind.String())
		}
		rows = append(rows, []string{a.Name, a.Cluster, a.Version, a.Workspace, a.APIExport, strings.Join(kinds, ",")})
	}
	ui.Table(o.env.Streams.Out, []string{"NAME", "CLUSTER", "VERSION", "WORKSPACE", "APIEXPORT", "KINDS"}, rows...)
	return nil
}

type agentRemoveOptions struct {
	dryRunFlags
	env   *Env
	setup setupFlags
	name  string
}

func newAgentRemoveCmd(env *Env) *cobra.Command {
	o := &agentRemoveOptions{env: env}
	c := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove an agent from the setup file",
		Long: `Remove an agent from the setup file, keeping its other comments, order and style. The next kcpctl up
removes it from its cluster.`,
		Example:           `  kcpctl agent remove widgets`,
		Args:              oneArg("agent name"),
		RunE:              withArg(&o.name, o.run),
		ValidArgsFunction: completeArgs(1, o.setup.names(env, agentNames)),
	}
	o.setup.add(c.Flags())
	o.addDryRun(c, "the edit")
	return c
}

func (o *agentRemoveOptions) run(ctx context.Context) error {
	if err := errors.Join(o.validateDryRun(), setup.CheckEditable(o.setup.file)); err != nil {
		return err
	}
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	if findAgent(s, o.name) == nil {
		return unknownName("agent", o.name, agentNames(s))
	}
	edited, err := s.file.RemoveAgent(o.name)
	if err != nil {
		return err
	}
	if o.dry() {
		after, err := s.with(edited)
		if err != nil {
			return err
		}
		ids := added(after.topology, s.topology)
		return o.preview(ctx, s, after, upRun{
			header:  fmt.Sprintf("remove agent %q from kcp %q", o.name, s.topology.Name),
			options: deploy.UpOptions{Only: ids, Removed: ids},
		})
	}
	if err := s.file.Rewrite(o.setup.file, edited); err != nil {
		return err
	}
	fmt.Fprintf(o.env.Streams.Err, "removed the agent %q from %s. To remove it from its cluster, run:\n  %s\n", o.name,
		o.setup.file, o.setup.command("up"))
	return nil
}

func findAgent(s *session, name string) *v1alpha1.Agent {
	for i := range s.file.Setup.Spec.Agents {
		if a := &s.file.Setup.Spec.Agents[i]; a.Name == name {
			return a
		}
	}
	return nil
}

// kindOf splits KIND.GROUP[/VERSION].
func kindOf(text string) (kind, group, version string, ok bool) {
	text, version, versioned := strings.Cut(text, "/")
	kind, group, _ = strings.Cut(text, ".")
	return kind, group, version, kind != "" && group != "" && (version != "") == versioned
}
