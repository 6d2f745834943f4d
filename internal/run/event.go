package run

import "time"

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

// Scope says what an event is about.
type Scope string

// The scopes of events.
const (
	// Step is a part of the run: checks, certificates, plan, registration, canary.
	Step Scope = "step"
	// Component is a component; the event's name is its ID.
	Component Scope = "component"
	// Note is a message of the run itself.
	Note Scope = "note"
)

// Event says that something about a run changed. Events carry no secrets.
type Event struct {
	Time   time.Time `json:"time"`
	Scope  Scope     `json:"scope"`
	Name   string    `json:"name,omitempty"`
	Status Status    `json:"status,omitempty"`
	// Message is the reason of a wait, or the result.
	Message string `json:"message,omitempty"`
	// Needs are the components that a pending component waits for.
	Needs []string `json:"needs,omitempty"`
}

// Observer is told of events, one at a time, in order.
type Observer func(Event)
