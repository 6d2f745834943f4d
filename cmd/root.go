// Package cmd holds kcpctl's commands: options, flags, validation, a call into internal, and what is printed.
package cmd

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kube"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/ui"
)

// Env is what a command knows of the world around it.
type Env struct {
	Streams *ui.Streams
	Now     func() time.Time
	Getenv  func(string) string
	// Program is what was typed to start kcpctl. Commands to run next begin with it.
	Program string
	// Open connects to the clusters of a topology. Nil is kube.New.
	Open func(*topology.Topology, kube.Options) (run.Runtime, error)
}

// System is the world of the running process.
func System() *Env {
	return &Env{
		Streams: ui.System(os.Getenv, os.Stdin, os.Stdout, os.Stderr), Now: time.Now, Getenv: os.Getenv, Program: os.Args[0],
	}
}

// Main runs kcpctl and returns its exit code.
func Main(ctx context.Context, args []string, env *Env) int {
	root := newRootCmd(env)
	root.SetArgs(args)
	root.SetIn(env.Streams.In)
	root.SetOut(env.Streams.Out)
	root.SetErr(env.Streams.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && clierr.Code(err) != clierr.Interrupted {
		err = clierr.New(clierr.Interrupted, "", "interrupted")
	}
	if !errors.Is(err, errSilent) {
		ui.PrintError(env.Streams, err)
	}
	return clierr.Code(err)
}

// errSilent is the error of a command that has printed all there is to say.
var errSilent = errors.New("")

// silent ends a command with an exit code and no message.
func silent(code int) error { return &clierr.Error{Err: errSilent, Code: code} }

func newRootCmd(env *Env) *cobra.Command {
	o := &globalOptions{Env: env}
	c := &cobra.Command{
		Use:   "kcpctl",
		Short: "One file in, a working kcp out",
		Long: `kcpctl brings up kcp from one setup file: root shard, shards, front-proxies and cache server, with certificates of its
own, on Kubernetes clusters or on this machine. It needs no operator, no cert-manager and no CRDs.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := o.fromEnvironment(c); err != nil {
				return err
			}
			return env.Streams.Configure(o.ui)
		},
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return clierr.New(clierr.BadInput, "run "+c.CommandPath()+" --help", "%w", err)
	})
	o.addFlags(c.PersistentFlags())
	completeFlag(c, "color", these(ui.ColorAuto, ui.ColorAlways, ui.ColorNever))
	for _, g := range commandGroups(o) {
		c.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, sub := range g.commands {
			sub.GroupID = g.title
			c.AddCommand(sub)
		}
	}
	return c
}

type commandGroup struct {
	title    string
	commands []*cobra.Command
}

func commandGroups(o *globalOptions) []commandGroup {
	return []commandGroup{
		{"Write a setup", []*cobra.Command{newInitCmd(o), newConfigCmd(o), newRenderCmd(o), newSchemaCmd(o)}},
		{"Run it", []*cobra.Command{newUpCmd(o, runUp), newCheckCmd(o), newDiffCmd(o), newStatusCmd(o), newHistoryCmd(o), newGraphCmd(o), newLogsCmd(o), newKubeconfigCmd(o), newCertsCmd(o), newDownCmd(o)}},
		{"Change it", []*cobra.Command{newAddShardCmd(o), newCordonCmd(o), newUncordonCmd(o), newRemoveShardCmd(o), newUpgradeCmd(o), newEtcdCmd(o)}},
		{"About kcpctl", []*cobra.Command{newExplainCmd(o), newVersionCmd(o)}},
	}
}

// noArgs refuses arguments, with the exit code of bad input.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return clierr.New(clierr.BadInput, "run "+c.CommandPath()+" --help", "%s takes no arguments, got %q", c.CommandPath(), args)
}

// maxArgs refuses more than n arguments.
func maxArgs(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return clierr.New(clierr.BadInput, "run "+c.CommandPath()+" --help", "%s takes at most %d argument(s), got %q", c.CommandPath(), n, args)
	}
}
