package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// timeline has the times of a run of kcpctl up, from its events.
type timeline struct {
	spans []*span
	total time.Duration
}

// span is a step or a component of a run. Times are relative to the start of the process.
type span struct {
	scope run.Scope
	name  string
	needs []string
	// began is when its work began, started when its objects were applied, and ended when it was ready.
	began, started, ended time.Duration
}

// applying is the prefix of the message of a component while its objects are applied.
const applying = "applying "

// newTimeline reads the events in the output of a process.
func newTimeline(events io.Reader, u usage) (*timeline, error) {
	t := &timeline{total: u.wall}
	for dec := json.NewDecoder(events); ; {
		var e run.Event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return t, nil
		} else if err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		if e.Scope != run.Note {
			t.span(e.Scope, e.Name).observe(e, e.Time.Sub(u.started))
		}
	}
}

// span returns the span of a name, and creates it the first time.
func (t *timeline) span(scope run.Scope, name string) *span {
	if s := t.find(scope, name); s != nil {
		return s
	}
	s := &span{scope: scope, name: name}
	t.spans = append(t.spans, s)
	return s
}

func (t *timeline) find(scope run.Scope, name string) *span {
	for _, s := range t.spans {
		if s.scope == scope && s.name == name {
			return s
		}
	}
	return nil
}

func (s *span) observe(e run.Event, at time.Duration) {
	switch e.Status {
	case run.Pending:
		s.needs = e.Needs
	case run.Running:
		if s.began == 0 {
			s.began = at
		}
		if s.started == 0 && !strings.HasPrefix(e.Message, applying) {
			s.started = at
		}
	case run.Done:
		s.ended = at
	}
}

// own returns the time of kcpctl itself: the time in which it waited neither for a started component nor for the
// canary.
func (t *timeline) own() time.Duration {
	waits := slices.DeleteFunc(slices.Clone(t.spans), func(s *span) bool { return !s.waits() })
	slices.SortFunc(waits, func(a, b *span) int { return cmp.Compare(a.started, b.started) })
	var waited, until time.Duration
	for _, s := range waits { // they overlap
		if s.ended > until {
			waited += s.ended - max(s.started, until)
			until = s.ended
		}
	}
	return t.total - waited
}

// waits reports whether a span is time of kcp.
func (s *span) waits() bool {
	return s.started > 0 && s.ended > s.started && (s.scope == run.Component || s.name == canary)
}

// canary is the step that creates a workspace on each shard.
const canary = "canary"

// path is the critical path of a run.
type path struct {
	Case  string     `json:"case"`
	Total float64    `json:"seconds"`
	Steps []pathStep `json:"steps"`
}

// pathStep is a part of a path, in seconds from the start of the run.
type pathStep struct {
	Name string  `json:"name"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
	// Started is when a component was started, possibly before its dependencies were ready.
	Started float64 `json:"started,omitempty"`
}

// path finds the critical path backwards: a component waited for the dependency that ended last.
func (t *timeline) path(name string) path {
	var steps []pathStep
	end := t.total
	add := func(name string, from, started time.Duration) {
		steps = append(steps, pathStep{name, from.Seconds(), end.Seconds(), started.Seconds()})
		end = from
	}
	if c := t.find(run.Step, canary); c != nil {
		add("the end, after the canary", c.ended, 0)
		add("canary", c.began, 0)
	}
	last := t.latest(t.components())
	if last != nil {
		add("until the canary begins", last.ended, 0)
	}
	for last != nil {
		before := t.latest(last.needs)
		from := last.began
		if before != nil {
			from = before.ended
		}
		add(last.name, from, last.started)
		last = before
	}
	add("certificates, preflight, plan", 0, 0)
	slices.Reverse(steps)
	return path{name, t.total.Seconds(), steps}
}

func (t *timeline) components() []string {
	var names []string
	for _, s := range t.spans {
		if s.scope == run.Component {
			names = append(names, s.name)
		}
	}
	return names
}

// latest returns the component that ended last.
func (t *timeline) latest(names []string) *span {
	var last *span
	for _, name := range names {
		if s := t.find(run.Component, name); s != nil && (last == nil || s.ended > last.ended) {
			last = s
		}
	}
	return last
}

func (p path) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nWhere the %.1f s went in the median run of %s\n", p.Total, p.Case)
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "  %6.2f  +%6.2f  %s", s.From, s.To-s.From, s.Name)
		if s.Started > 0 {
			fmt.Fprintf(&b, ", started at %.2f", s.Started)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
