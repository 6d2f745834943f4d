package backup

import (
	"sync"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// events sends events to an observer, one at a time.
type events struct {
	observe run.Observer
	now     func() time.Time
	mu      sync.Mutex
}

func (e *events) emit(v run.Event) {
	v.Time = e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observe(v)
}

func (e *events) step(name string, s run.Status, message string) {
	e.emit(run.Event{Scope: run.Step, Name: name, Status: s, Message: message})
}

func (e *events) component(id topology.ID, s run.Status, message string) {
	e.emit(run.Event{Scope: run.Component, Name: string(id), Status: s, Message: message})
}

// fail reports a step as failed, and returns the error.
func (e *events) fail(name string, err error) error {
	e.step(name, run.Failed, run.FirstLine(err))
	return err
}

// failComponent reports a component as failed, and returns the error.
func (e *events) failComponent(id topology.ID, err error) error {
	e.component(id, run.Failed, run.FirstLine(err))
	return err
}
