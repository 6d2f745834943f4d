// Package cmd holds kcpctl's commands. Each is readable alone: its options, flags and validation, one call into
// internal, and its output.
package cmd

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
)

// Env is the environment of a command.
type Env struct {
	Streams *ui.Streams
	Now     func() time.Time
	Getenv  func(string) string
	// Program is how kcpctl was started. The commands that up suggests begin with it.
	Program string
	// Command is the command that is run, with its arguments and without its flags. Main sets it.
	Command string
	// Open connects to the clusters of a topology. Nil means kube.New.
	Open func(*topology.Topology, kube.Options) (run.Runtime, error)
	// events are the events of a command with -o json, else nil.
	events *events
	// root has all commands, and session is the setup that this one works on: see nextSteps.
	root    *cobra.Command
	session *session
	// Releases is the page of the releases of kcpctl. Empty means version.Releases.
	Releases string
	// Serve is called by commands that run for long, such as controller. Nil ignores it.
	Serve func()
}

// System is the environment of this process.
func System() *Env {
	return &Env{
		Streams: ui.System(os.Getenv, os.Stdin, os.Stdout, os.Stderr), Now: time.Now, Getenv: getenv,
		Program: os.Args[0],
	}
}

// getenv returns a variable of this process. Windows has another name for HOME.
func getenv(name string) string {
	if name == "HOME" && runtime.GOOS == "windows" {
		return cmp.Or(os.Getenv(name), os.Getenv("USERPROFILE"))
	}
	return os.Getenv(name)
}

// Main runs kcpctl and returns its exit code.
func Main(ctx context.Context, args []string, env *Env) int {
	root := newRootCmd(env)
	env.root = root
	env.session = nil
	root.SetArgs(args)
	root.SetIn(env.Streams.In)
	root.SetOut(env.Streams.Out)
	root.SetErr(env.Streams.Err)
	ctx, end := context.WithCancelCause(cluster.Quiet(ctx)) // commands report errors themselves
	defer end(nil)
	env.Streams.Out.Lost = func() { end(errNoReader) }
	c, err := root.ExecuteContextC(ctx)
	err = env.withNextSteps(env.session.explained(interrupted(ctx, err)))
	ui.PrintError(env.Streams, reported(err))
	if err != nil && env.events == nil && wantsEvents(c, args) {
		env.startEvents(c)
	}
	if env.events != nil {
		env.events.end(err)
	}
	return clierr.Code(err)
}

// interrupted returns the error of a command that has ended, as one of the interruption if there was one: then the
// other errors follow from it, except the errors of a clean-up.
func interrupted(ctx context.Context, err error) error {
	left := clierr.Left(err)
	switch {
	case err == nil || ctx.Err() == nil || clierr.Code(err) == clierr.Interrupted:
		return err
	case left != nil:
		return clierr.New(clierr.Interrupted, "", "interrupted: %w", left)
	case errors.Is(context.Cause(ctx), errNoReader):
		return silent(clierr.Interrupted)
	}
	return clierr.New(clierr.Interrupted, "", "interrupted")
}

// errNoReader is why a command is interrupted whose output has lost its reader, as in kcpctl status | head.
var errNoReader = errors.New("the output has no reader")

// errSilent is the error of a command whose output has already reported the failure.
var errSilent = errors.New("")

// silent ends a command with an exit code and no message.
func silent(code int) error { return &clierr.Error{Err: errSilent, Code: code} }

// reported returns the part of an error that the output of the command has not reported, or nil.
func reported(err error) error {
	if errors.Is(err, errSilent) {
		return clierr.Left(err)
	}
	return err
}

// orUnknown returns the error of a command that looks for something, and exits with 1 if it finds it: if it could not
// look, the exit code is another one, as in kubectl diff.
func orUnknown(err error) error {
	if err == nil || errors.Is(err, errSilent) || clierr.Code(err) != clierr.Failed {
		return err
	}
	return &clierr.Error{Err: err, Code: clierr.Unknown}
}

func newRootCmd(env *Env) *cobra.Command {
	var options ui.Options
	c := &cobra.Command{
		Use:   kcpctl,
		Short: "Deploy kcp from a single setup file",
		Long: `kcpctl deploys kcp from a single setup file: the root shard, shards, front-proxies and a cache server,
with their certificates, on Kubernetes clusters or on this machine. It needs no operator, no
cert-manager and no CRDs.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, args []string) error {
			env.Command = strings.Join(append([]string{pathOf(c)}, args...), " ")
			if wantsEvents(c, nil) {
				env.startEvents(c)
			}
			if err := rejectEmptyValues(c, args); err != nil {
				return err
			}
			if err := setFromSources(env, c); err != nil {
				return err
			}
			return env.Streams.Configure(options)
		},
	}
	f := c.PersistentFlags()
	f.StringVar(&options.Color, "color", ui.ColorAuto, "use color: auto, always or never")
	f.BoolVar(&options.Plain, "plain", false, "print as if to a file: no color and no redrawing")
	allow(f, anywhere, "color", "plain")
	completeFlag(c, "color", fixed(ui.ColorAuto, ui.ColorAlways, ui.ColorNever))
	c.SetFlagErrorFunc(flagError)
	for _, g := range commandGroups(env) {
		c.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, sub := range g.commands {
			sub.GroupID = g.title
			c.AddCommand(sub)
		}
	}
	c.SetUsageFunc(usageOf(env.Streams.Out))
	c.SetHelpCommandGroupID(groupAbout)
	c.SetCompletionCommandGroupID(groupAbout)
	c.InitDefaultHelpCmd()
	c.InitDefaultCompletionCmd()
	for _, sub := range c.Commands() {
		switch sub.Name() {
		case "help":
			sub.Args = knownTopic
		case "completion":
			for _, shell := range sub.Commands() {
				shell.Args = noArgs
			}
		}
	}
	rejectUnknown(c)
	rejectSecondValues(c)
	env.name(c)
	return c
}

// rejectUnknown makes a mistyped subcommand an error of bad input, in commands that only hold others: cobra prints
// their help and succeeds.
func rejectUnknown(c *cobra.Command) {
	for _, sub := range c.Commands() {
		rejectUnknown(sub)
	}
	if c.HasSubCommands() && !c.Runnable() {
		c.Args = knownCommand
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
}

const groupAbout = "About kcpctl"

type commandGroup struct {
	title    string
	commands []*cobra.Command
}

func commandGroups(env *Env) []commandGroup {
	return []commandGroup{
		{"Write a setup", []*cobra.Command{newInitCmd(env), newImportCmd(env), newConfigCmd(env), newValidateCmd(env),
			newRenderCmd(env), newSchemaCmd(env)}},
		{"Run it", []*cobra.Command{
			newUpCmd(env), newCheckCmd(env), newDiffCmd(env), newStatusCmd(env), newTopCmd(env), newCapacityCmd(env),
			newHistoryCmd(env), newGraphCmd(env),
			newLogsCmd(env), newRestartCmd(env), newSupportBundleCmd(env),
			newKubeconfigCmd(env), newCertsCmd(env), newEncryptionCmd(env), newDownCmd(env),
		}},
		{"Change it", []*cobra.Command{
			newAddShardCmd(env), newCordonCmd(env), newUncordonCmd(env), newRemoveShardCmd(env), newMoveCmd(env),
			newRebalanceCmd(env), newUpgradeCmd(env),
			newAgentCmd(env), newClusterCmd(env), newWorkloadsCmd(env), newEtcdCmd(env), newBackupCmd(env),
			newRestoreCmd(env),
		}},
		{"Servers", []*cobra.Command{newControllerCmd(env), newSyncerCmd(env), newReceiveCmd(env)}},
		{groupAbout, []*cobra.Command{
			newExplainCmd(env), newVersionCmd(env), newDownloadCmd(env), newExitCodesTopic(),
		}},
	}
}
