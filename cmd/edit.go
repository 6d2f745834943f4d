package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/ui"
)

// with is the session of the edited setup file.
func (s *session) with(f *setup.File) (*session, error) {
	next := &session{setupOptions: s.setupOptions, voice: s.voice, File: f}
	if s.local {
		return next, next.placeOnMachine()
	}
	if err := next.placeOnCluster(f); err != nil {
		return nil, err
	}
	next.Topology = topology.Build(f.Setup)
	return next, nil
}

// editOptions are those of commands that edit the setup file, and bring up what the edit changes.
type editOptions struct {
	bringOptions
	dryRun string
	force  bool
}

func (e *editOptions) addEditFlags(c *cobra.Command, timeout time.Duration, until string) {
	e.addBringFlags(c, timeout, until)
	addDryRun(c, &e.dryRun, "the edit")
	c.Flags().BoolVar(&e.force, "force-conflicts", false, "take over fields that other field managers own")
}

func (e *editOptions) check(file string) error {
	return errors.Join(checkDryRun(e.dryRun), checkTimeout(e.timeout), setup.CheckEditable(file))
}

// preview shows what an edit changes in the setup file and, in a dry run of the server, what that changes.
func (e *editOptions) preview(ctx context.Context, before, after *session, header string, o run.UpOptions) error {
	name := before.File.Name
	fmt.Fprint(before.Streams.Out, udiff.Unified(name, name, string(before.File.Data), string(after.File.Data)))
	if e.dryRun == dryRunClient {
		return nil
	}
	shown := *e
	shown.output, o.DryRun = "", true
	res, err := shown.bringUp(ctx, after, header, o)
	if err == nil {
		ui.PrintPlan(before.Streams.Out, res.Plan)
	}
	return err
}

// edit writes an edit into the setup file; it is nil if the edit changes nothing.
func (s *session) edit(after *session) func() error {
	if after.File == s.File {
		return nil
	}
	return func() error { return s.File.Rewrite(s.file, after.File) }
}

// bringUp connects to what runs the setup, and brings it up.
func (e *editOptions) bringUp(ctx context.Context, s *session, header string, o run.UpOptions) (*run.Result, error) {
	rt, err := s.open()
	if err != nil {
		return nil, err
	}
	defer rt.Close()
	o.Force = e.force
	return s.bring(ctx, rt, header, e.bringOptions, o)
}

// askRoot connects to what runs the setup and to its root shard, and calls do.
func (s *session) askRoot(ctx context.Context, do func(run.Runtime, *kcp.Client) error) error {
	rt, err := s.open()
	if err != nil {
		return err
	}
	defer rt.Close()
	return askRoot(ctx, s, rt, func(root *kcp.Client) error { return do(rt, root) })
}

// askRoot connects to the root shard and calls do.
func askRoot(ctx context.Context, s *session, rt run.Runtime, do func(*kcp.Client) error) error {
	state, err := rt.Store().Load(ctx)
	if err != nil {
		return err
	}
	if len(state.CAs) == 0 {
		return clierr.New(clierr.Failed, "run kcpctl up"+s.flagsForTip()+" first", "kcp %q is not there", s.Topology.Name)
	}
	root, err := run.Connect(rt, s.Topology.Root(), state, s.Now())
	if err != nil {
		return err
	}
	return do(root)
}

// oneArg wants exactly one argument.
func oneArg(args []string, what string) (string, error) {
	if len(args) != 1 {
		return "", clierr.New(clierr.BadInput, "see --help", "give one %s, got %q", what, args)
	}
	return args[0], nil
}
