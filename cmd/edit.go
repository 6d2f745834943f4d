package cmd

import (
	"context"
	"fmt"

	"github.com/aymanbagabas/go-udiff"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/ui"
)

// with is the session of the edited setup file.
func (s *session) with(f *setup.File) (*session, error) {
	next := &session{setupOptions: s.setupOptions, File: f}
	if s.local {
		return next, next.placeOnMachine()
	}
	if err := next.placeOnCluster(f); err != nil {
		return nil, err
	}
	next.Topology = topology.Build(f.Setup)
	return next, nil
}

// printEdit shows what an edit changes in the setup file.
func (s *session) printEdit(edited *setup.File) {
	fmt.Fprint(s.Streams.Out, udiff.Unified(s.File.Name, s.File.Name, string(s.File.Data), string(edited.Data)))
}

// bringUp runs up with some options, and shows it.
func (s *session) bringUp(ctx context.Context, header string, o run.UpOptions, json bool) (*run.Result, error) {
	var progress ui.Progress
	rt, err := s.open(func(msg string) {
		progress.Observe(run.Event{Time: s.Now(), Scope: run.Note, Message: msg})
	})
	if err != nil {
		return nil, err
	}
	defer rt.Close()
	remembered, err := setup.Marshal(s.File.Setup)
	if err != nil {
		return nil, err
	}
	progress = ui.NewProgress(ctx, s.Streams, ui.ProgressOptions{Header: header, JSON: json, Now: s.Now})
	up := &run.Up{
		Topology: s.Topology, Runtime: rt, Setup: remembered, Observe: progress.Observe, Now: s.Now, Options: o,
		Preflight: s.preflight(rt),
	}
	res, err := up.Run(ctx)
	progress.Close()
	if res != nil && res.Plan != nil && len(res.Plan.Conflicts) > 0 {
		ui.PrintConflicts(s.Streams.Err, res.Plan.Conflicts)
	}
	return res, err
}

// askRoot connects to the root shard and calls do.
func (s *session) askRoot(ctx context.Context, do func(run.Runtime, *kcp.Client) error) error {
	rt, err := s.open(s.note)
	if err != nil {
		return err
	}
	defer rt.Close()
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
	return do(rt, root)
}

// checkOutput accepts what commands that run something can print.
func checkOutput(output string) error {
	if output != "" && output != "json" {
		return clierr.New(clierr.BadInput, "use -o json", "unknown output format %q", output)
	}
	return nil
}

// oneArg wants exactly one argument.
func oneArg(args []string, what string) (string, error) {
	if len(args) != 1 {
		return "", clierr.New(clierr.BadInput, "see --help", "give one %s, got %q", what, args)
	}
	return args[0], nil
}
