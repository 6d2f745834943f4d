package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/version"
)

// reportsEvents is the annotation of the flag -o of commands that report events.
const reportsEvents = "kcpctl.dev/events"

// events are the events of a command with -o json. Nothing else is written to stdout. The first event describes the
// command and the last one its result, also if it fails before it begins.
type events struct {
	env   *Env
	mu    sync.Mutex
	out   *ui.EventLines
	begun bool
	about run.Command
	// installation returns the ID of the installation, if it is known. Nil: it is not.
	installation func() string
}

// startEvents makes a command report events instead of text.
func (e *Env) startEvents(c *cobra.Command) {
	_, name, _ := strings.Cut(pathOf(c), " ")
	e.events = &events{
		env: e, out: ui.NewEventLines(e.Streams), about: run.Command{Command: name, Version: version.Get().Version},
	}
}

// wantsEvents reports whether a command was asked for events, also if its flags could not be parsed.
func wantsEvents(c *cobra.Command, args []string) bool {
	f := c.Flags().Lookup("output")
	if f == nil || f.Annotations[reportsEvents] == nil {
		return false
	}
	if dash := slices.Index(args, "--"); dash >= 0 {
		args = args[:dash] // what follows is a command of the user
	}
	return f.Value.String() == outputJSON || slices.ContainsFunc(
		[]string{"-ojson", "-o=json", "-o json", "--output=json", "--output json"}, func(typed string) bool {
			return strings.Contains(" "+strings.Join(args, " ")+" ", " "+typed+" ")
		})
}

// describe adds what the setup file says to the first event.
func (s *events) describe(about *v1alpha1.Setup) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.about.Setup = about.Metadata.Name
	s.about.KCP = about.Spec.Version
	if s.about.Installation == "" {
		s.about.Installation = about.Metadata.Installation
	}
	s.begin()
}

// begin writes the first event, once.
func (s *events) begin() {
	if !s.begun {
		s.begun = true
		about := s.about
		s.out.Observe(run.Event{Time: s.env.Now(), Scope: run.Whole, Status: run.Running, Command: &about})
	}
}

// Observe implements ui.Progress.
func (s *events) Observe(e run.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	s.out.Observe(e)
}

// Close implements ui.Progress. More events may follow.
func (s *events) Close() {}

// note writes a remark, or a table of a result.
func (s *events) note(message string, table ...[]string) {
	s.Observe(run.Event{Time: s.env.Now(), Scope: run.Note, Message: message, Table: table})
}

// end writes the last event.
func (s *events) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	if s.installation != nil {
		if id := s.installation(); id != "" {
			s.about.Installation = id
		}
	}
	s.about.Ending = ending(err)
	s.out.Observe(run.Event{Time: s.env.Now(), Scope: run.Whole, Status: statusOf(s.about.ExitCode), Command: &s.about})
}

func statusOf(exitCode int) run.Status {
	switch exitCode {
	case 0:
		return run.Done
	case clierr.Interrupted:
		return run.Interrupted
	}
	return run.Failed
}

// ending is the result of a command that ended with an error, or with nil.
func ending(err error) *run.Ending {
	out := &run.Ending{ExitCode: clierr.Code(err)}
	if err == nil {
		return out
	}
	before, parts := clierr.Split(err)
	if len(parts) < 2 {
		out.Error = err.Error()
		out.Hint = clierr.Hint(err)
		out.Errors = details(err)
		return out
	}
	out.Error = cmp.Or(before, fmt.Sprintf("%d errors", len(parts)))
	out.Hint = strings.Join(clierr.Outer(err), "; ")
	for i, problem := range clierr.Problems(err) {
		found := details(parts[i])
		if found == nil {
			found = []run.Failure{{Message: problem.Message, Hint: problem.Hint}}
		}
		out.Errors = append(out.Errors, found...)
	}
	if slices.ContainsFunc(out.Errors, func(f run.Failure) bool { return f.Hint == out.Hint }) {
		out.Hint = "" // it is the hint of one of them
	}
	return out
}

// details are the parts of an error that is about many things: all mistakes of a setup file, or all conflicts.
func details(err error) []run.Failure {
	var out []run.Failure
	if found, ok := errors.AsType[setup.Errors](err); ok {
		for _, p := range found {
			out = append(out, run.Failure(p))
		}
	}
	if found, ok := errors.AsType[*deploy.ConflictError](err); ok {
		for _, c := range found.Conflicts {
			out = append(out, run.Failure{Message: fmt.Sprintf("%s: %s is owned by %s",
				cmp.Or(c.Object, c.Ref.String()), c.Field, c.Manager), Hint: c.Leave})
		}
	}
	return out
}

// ofInstallation adds the ID of the installation to the last event.
func (s *events) ofInstallation(id func() string) {
	if s != nil {
		s.installation = id
	}
}

// print writes a result that is a text: to stdout, or as an event.
func (e *Env) print(text string) {
	if e.events != nil {
		e.events.note(strings.TrimSuffix(text, "\n"))
		return
	}
	fmt.Fprint(e.Streams.Out, text)
}

// printPlan writes what a run would change: to stdout, or as an event with a table.
func (e *Env) printPlan(p *plan.Plan) {
	if e.events == nil {
		ui.PrintPlan(e.Streams.Out, p)
		return
	}
	rows := [][]string{{"COMPONENT", "ACTION", "OBJECT", "CLUSTER"}}
	for _, it := range p.Items {
		if it.Action != plan.Unchanged {
			rows = append(rows, []string{string(it.Component), string(it.Action), it.String(), it.Cluster})
		}
	}
	e.events.note(p.Summary(), rows...)
}
