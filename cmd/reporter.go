package cmd

import (
	"context"
	"fmt"
	"sync"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

func (e *Env) note(msg string) {
	msg = e.nextSteps(msg)
	if e.events != nil {
		e.events.note(msg)
		return
	}
	fmt.Fprintln(e.Streams.Err, e.Streams.Err.Text("note: "+msg))
}

func (e *Env) notes(f *setup.File) {
	for _, n := range f.Notes() {
		e.note(n)
	}
}

// reporter shows the events of a run. Notes are events during a run, and separate lines otherwise.
type reporter struct {
	env *Env
	mu  sync.Mutex
	// progress is nil when nothing runs.
	progress ui.Progress
}

func (r *reporter) note(msg string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress == nil {
		r.env.note(msg)
		return
	}
	r.progress.Observe(run.Event{Time: r.env.Now(), Scope: run.Note, Message: r.env.nextSteps(msg)})
}

func (r *reporter) observe(e run.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress != nil {
		e.Message = r.env.nextSteps(e.Message)
		r.progress.Observe(e)
	}
}

// begin shows the events from now on, under a header or as JSON, until end is called.
func (r *reporter) begin(ctx context.Context, header string) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = r.env.events
	if r.env.events == nil {
		r.progress = ui.NewProgress(ctx, r.env.Streams, ui.ProgressOptions{Header: header, Now: r.env.Now})
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.progress.Close()
		r.progress = nil
	}
}
