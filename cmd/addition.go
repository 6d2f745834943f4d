package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// addition is what add-shard, agent add and cluster add have in common: they add an item to the setup file, and apply
// the components that it adds.
type addition struct {
	*applyFlags
	// what is the item with its name, such as shard "gamma".
	what string
	// scope returns the options of up. Nil: up applies the components that the edit adds.
	scope func(*session) deploy.UpOptions
	// ready fails, before anything is written, if kcp is not ready for the item. Nil: it always is.
	ready func(context.Context, *session) error
	// explain adds to an error how to continue with an item that is in the setup file.
	explain func(error) error
	// done runs after up. Nil: nothing does.
	done func(context.Context, *session) error
}

// errDeclined means that the user has answered no: nothing is written, and that is not a failure.
var errDeclined = errors.New("declined")

// apply writes the edited setup file and applies what it adds. A dry run prints both.
func (a addition) apply(ctx context.Context, before *session, edited *setup.File) error {
	s, err := before.with(edited)
	if err != nil {
		return err
	}
	up := upRun{header: fmt.Sprintf("add %s to kcp %q", a.what, s.topology.Name), wait: a.wait}
	if a.scope != nil {
		up.options = a.scope(s)
	} else {
		up.options.Only = added(before.topology, s.topology)
	}
	up.options.Force = a.forceConflicts
	if edited == before.file {
		s.reporter.note(fmt.Sprintf("%s already has the %s", edited.Name, a.what))
	}
	if a.dryRun != dryRunNone {
		return a.preview(ctx, before, s, up)
	}
	if err := s.connectToApply(ctx); err != nil {
		return err
	}
	defer s.close()
	if a.scope == nil {
		hint := "if " + s.runtime.Where() + " is the place of kcp, run " + s.flags.command("up") + ", which starts %s"
		if err := requireDependencies(ctx, s, up.options.Only, hint); err != nil {
			return err
		}
	}
	if a.ready != nil {
		if err := a.ready(ctx, s); errors.Is(err, errDeclined) {
			return nil
		} else if err != nil {
			return err
		}
	}
	up.options.Edit = a.write(before, s)
	if _, err := up.run(ctx, s); err != nil {
		return a.explained(before, s, err)
	}
	if a.done == nil {
		return nil
	}
	return a.done(ctx, s)
}

// write returns what writes the edit into the setup file, with a message; nil if the edit changes nothing.
func (a addition) write(before, after *session) func() error {
	write := before.writeEdit(after)
	if write == nil {
		return nil
	}
	return func() error {
		if err := write(); err != nil {
			return err
		}
		after.reporter.note(fmt.Sprintf("added the %s to %s", a.what, after.file.Name))
		return nil
	}
}

// explained adds to an error of up how to continue, if the item is in the setup file: this run has written it, or it
// was there before.
func (a addition) explained(before, s *session, err error) error {
	if s.written || s.file == before.file {
		return a.explain(err)
	}
	return err
}

// added are the components of a topology that another one does not have.
func added(before, after *topology.Topology) []topology.ID {
	var out []topology.ID
	for _, c := range after.Components {
		if before.Component(c.ID()) == nil {
			out = append(out, c.ID())
		}
	}
	return out
}
