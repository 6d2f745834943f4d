package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kcpctl/kcpctl/internal/gather"
	"github.com/kcpctl/kcpctl/internal/ready"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Status is how far a step or a component is.
type Status string

// The states of a step or component.
const (
	Pending Status = "pending" // waits for others
	Running Status = "running"
	Done    Status = "done"
	Failed  Status = "failed"
	Skipped Status = "skipped" // something it needs failed
)

// Scope is the subject of an event.
type Scope string

const (
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
	// Table is the header and the rows of a table that belongs to a note.
	Table [][]string `json:"table,omitempty"`
}

// Observer receives events, one at a time, in order.
type Observer func(Event)

// reporter sends events to an observer, also of steps and components that run concurrently.
type reporter struct {
	observe Observer
	now     func() time.Time
	mu      sync.Mutex
}

func newReporter(o Observer, now func() time.Time) *reporter { return &reporter{observe: o, now: now} }

func (r *reporter) emit(e Event) {
	e.Time = r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observe(e)
}

// note emits remarks as one event.
func (r *reporter) note(remarks ...string) {
	if len(remarks) > 0 {
		r.emit(Event{Scope: Note, Message: strings.Join(remarks, "\n")})
	}
}

func (r *reporter) step(name string, s Status, message string) {
	r.emit(Event{Scope: Step, Name: name, Status: s, Message: message})
}

func (r *reporter) component(id topology.ID, s Status, message string) {
	r.emit(Event{Scope: Component, Name: string(id), Status: s, Message: message})
}

// fail reports a step as failed and returns the error.
func (r *reporter) fail(name string, err error) error {
	r.step(name, Failed, firstLine(err))
	return err
}

// reasons joins the reasons of several concurrent waits into one message.
type reasons struct {
	mu     sync.Mutex
	of     map[string]string
	last   string
	report func(string)
}

func newReasons(report func(string)) *reasons {
	return &reasons{of: map[string]string{}, report: report}
}

// set sets what one of them waits for; empty once its wait has ended.
func (r *reasons) set(name, reason string) {
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
func (r *reasons) message() string {
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

func names(ids []topology.ID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, string(id))
	}
	return out
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func waitMessage(s ready.State) string {
	switch {
	case s.Reason != "":
		return s.Reason
	case s.Replicas > 0:
		return fmt.Sprintf("%d/%d ready", s.ReadyReplicas, s.Replicas)
	}
	return "starting"
}

func doneMessage(s ready.State, applied int) string {
	switch {
	case s.Replicas > 0 && applied > 0:
		return fmt.Sprintf("ready %d/%d", s.ReadyReplicas, s.Replicas)
	case s.Replicas > 0:
		return fmt.Sprintf("ready %d/%d, unchanged", s.ReadyReplicas, s.Replicas)
	case applied > 0:
		return count(applied, "object", "objects") + " applied"
	}
	return "unchanged"
}
