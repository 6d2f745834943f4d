package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// Status is the progress of a step or of a component.
type Status string

// The states of a step or component.
const (
	Pending Status = "pending" // waits for others
	Running Status = "running"
	Done    Status = "done"
	Failed  Status = "failed"
	Skipped Status = "skipped" // something it needs failed
	// Interrupted and NotStarted are in a run that the user has ended: before it was done, and before its turn.
	Interrupted Status = "interrupted"
	NotStarted  Status = "notStarted"
)

// Scope is the subject of an event.
type Scope string

const (
	// Whole is the command: its first event and its last one.
	Whole Scope = "run"
	// Step is a part of the run: checks, certificates, plan, registration, canary.
	Step Scope = "step"
	// Component is a component; the event's name is its ID.
	Component Scope = "component"
	// Note is a message of the run itself.
	Note Scope = "note"
)

// Event is a change in the course of a run. Events carry no secrets.
type Event struct {
	Time   time.Time `json:"time"`
	Scope  Scope     `json:"scope"`
	Name   string    `json:"name,omitempty"`
	Status Status    `json:"status,omitempty"`
	// Message is the reason of a wait, the result, or one line for each remark.
	Message string `json:"message,omitempty"`
	// Needs are the components that a pending component waits for.
	Needs []string `json:"needs,omitempty"`
	// Problems are everything that is wrong, each with its next step, if a step or a component has failed.
	Problems []clierr.Problem `json:"problems,omitempty"`
	// Table is the header and the rows of a table that belongs to a note.
	Table [][]string `json:"table,omitempty"`
	*Command
}

// Command has the further fields of the events of a whole command. The first one has no result.
type Command struct {
	// Command is the command without its flags, such as certs renew.
	Command string `json:"command,omitempty"`
	// Setup is metadata.name of the setup file, and KCP the release that the file has. They are empty if the file could
	// not be read.
	Setup string `json:"setup,omitempty"`
	KCP   string `json:"kcp,omitempty"`
	// Installation is the ID of the installation, as soon as it is known.
	Installation string `json:"installation,omitempty"`
	// Version is the version of kcpctl.
	Version string `json:"version,omitempty"`
	*Ending
}

// Ending is the result of a command.
type Ending struct {
	ExitCode int `json:"exitCode"`
	// Error is why the command failed, and Hint is the next step. Errors are the parts of an error that has several,
	// such as all mistakes of a setup file.
	Error  string    `json:"error,omitempty"`
	Hint   string    `json:"hint,omitempty"`
	Errors []Failure `json:"errors,omitempty"`
}

// Failure is one of several errors.
type Failure struct {
	// File, Line, Column and Path are where a mistake is in the setup file. Lines and columns start at 1.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Path is the field of the setup file, such as spec.shards[1].name.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Hint is how to fix it.
	Hint string `json:"hint,omitempty"`
}

// Observer receives events, one at a time, in order.
type Observer func(Event)

// Reporter sends events to an observer, also of steps and components that run concurrently.
type Reporter struct {
	observe Observer
	now     func() time.Time
	mu      sync.Mutex
}

// NewReporter returns a reporter that takes the times of events from now.
func NewReporter(o Observer, now func() time.Time) *Reporter { return &Reporter{observe: o, now: now} }

// Emit sends an event, with its time.
func (r *Reporter) Emit(e Event) {
	e.Time = r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observe(e)
}

// Note emits remarks as one event.
func (r *Reporter) Note(remarks ...string) {
	if len(remarks) > 0 {
		r.Emit(Event{Scope: Note, Message: strings.Join(remarks, "\n")})
	}
}

// Step reports the progress of a step.
func (r *Reporter) Step(name string, s Status, message string) {
	r.Emit(Event{Scope: Step, Name: name, Status: s, Message: message})
}

// Component reports the progress of a component.
func (r *Reporter) Component(id topology.ID, s Status, message string) {
	r.Emit(Event{Scope: Component, Name: string(id), Status: s, Message: message})
}

// Failed reports why a component is not ready, unless that is only because the user has ended the run. It returns the
// error. Without one it reports nothing.
func (r *Reporter) Failed(id topology.ID, err error) error {
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled):
		r.Component(id, Interrupted, "")
	default:
		r.Component(id, Failed, FirstLine(err))
	}
	return err
}

// Fail reports the error of a step in the same way.
func (r *Reporter) Fail(name string, err error) error {
	shown := err
	if errors.Is(err, context.Canceled) {
		if shown = clierr.Left(err); shown == nil {
			r.Step(name, Interrupted, "")
			return err
		}
	}
	r.Emit(Event{Scope: Step, Name: name, Status: Failed, Message: FirstLine(shown), Problems: clierr.Problems(shown)})
	return err
}

// Reasons joins the reasons of several concurrent waits into one message.
type Reasons struct {
	mu     sync.Mutex
	of     map[string]string
	last   string
	report func(string)
}

// NewReasons returns reasons that call report whenever the message changes.
func NewReasons(report func(string)) *Reasons {
	return &Reasons{of: map[string]string{}, report: report}
}

// Set sets the reason of a wait. It is empty when the wait has ended.
func (r *Reasons) Set(name, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[name] = reason
	if reason == "" {
		delete(r.of, name)
	}
	if msg := r.message(); msg != r.last {
		r.last = msg
		r.report(msg)
	}
}

// message names the waits by their reasons: equal ones together, and a few of many.
func (r *Reasons) message() string {
	of := map[string][]string{}
	for _, n := range slices.Sorted(maps.Keys(r.of)) {
		of[r.of[n]] = append(of[r.of[n]], n)
	}
	var parts []string
	for reason, waits := range of {
		parts = append(parts, gather.Few(waits, gather.Listed, ", ")+": "+reason)
	}
	slices.Sort(parts)
	return gather.Few(parts, gather.Listed, "; ")
}

// Names returns IDs as texts.
func Names(ids []topology.ID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, string(id))
	}
	return out
}

// FirstLine returns the first line of an error, for one line of output.
func FirstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// WaitMessage returns why a component is not ready yet.
func WaitMessage(s ready.State) string {
	switch {
	case s.Reason != "":
		return s.Reason
	case s.Replicas > 0:
		return fmt.Sprintf("%d/%d ready", s.ReadyReplicas, s.Replicas)
	}
	return "starting"
}

// Some joins components for a sentence, at most a few of them.
func Some(ids []topology.ID) string { return gather.Few(Names(ids), gather.Listed, ", ") }
