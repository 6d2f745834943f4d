package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// board is the state of a run: a row for each step and component, in the order of their first events.
type board struct {
	rows  []*row
	index map[string]*row
}

// row is a line of the live region: a step, a component, or several of them.
type row struct {
	scope   run.Scope
	name    string
	status  run.Status
	message string
	needs   []string
	// started and ended are zero if it has not started or ended.
	started, ended time.Time
	// sum marks a row that represents several components or steps.
	sum bool
}

func newBoard() *board { return &board{index: map[string]*row{}} }

func (r *row) key() string { return string(r.scope) + " " + r.name }

// final reports whether a status no longer changes.
func final(s run.Status) bool {
	return slices.Contains([]run.Status{run.Done, run.Failed, run.Skipped, run.Interrupted, run.NotStarted}, s)
}

// update updates the row of an event's step or component, and returns it.
func (b *board) update(e run.Event) *row {
	r := &row{scope: e.Scope, name: e.Name}
	if known := b.index[r.key()]; known != nil {
		r = known
	} else {
		b.index[r.key()] = r
		b.rows = append(b.rows, r)
	}
	if e.Status == run.Running && (r.started.IsZero() || final(r.status)) {
		r.started = e.Time
		r.ended = time.Time{}
	}
	if final(e.Status) && !final(r.status) {
		r.ended = e.Time
	}
	r.status = e.Status
	r.message = e.Message
	if len(e.Needs) > 0 {
		r.needs = e.Needs
	}
	return r
}

// message is the message of a row: the message of its last event, or what a pending component waits for.
func (b *board) message(r *row) string {
	if r.status == run.Interrupted || r.status == run.NotStarted {
		return cmp.Or(r.message, word(r))
	}
	if r.status != run.Pending || r.message != "" {
		return r.message
	}
	var waits []string
	for _, id := range r.needs {
		if need := b.index[(&row{scope: run.Component, name: id}).key()]; need == nil || need.status != run.Done {
			waits = append(waits, id)
		}
	}
	if len(waits) == 0 {
		return ""
	}
	return "waits for " + gather.Few(waits, gather.Listed, ", ")
}

// folded are the names of rows that represent several components or steps of a status, in the order in which they are
// folded.
var folded = []struct {
	scope  run.Scope
	status run.Status
	name   string
}{
	{run.Component, run.Done, "more ready"},
	{run.Step, run.Done, "more done"},
	{run.Component, run.Skipped, "more skipped"},
	{run.Component, run.NotStarted, "more not started"},
	{run.Component, run.Interrupted, "more interrupted"},
	{run.Component, run.Pending, "more waiting"},
	{run.Component, run.Running, "more in progress"},
	{run.Component, run.Failed, "more failed"},
}

// fit reduces rows to a number of lines, so that a run with a hundred components fits on the screen. It folds what is
// done first, and components that failed last.
func fit(rows []*row, lines int) []*row {
	if len(rows) > lines {
		rows = foldReady(rows)
	}
	for _, f := range folded {
		if excess := len(rows) - lines; excess > 0 {
			rows = fold(rows, f.scope, f.status, f.name, excess+1)
		}
	}
	return rows[max(0, len(rows)-lines):]
}

// foldReady replaces many components of a kind that are ready with one row.
func foldReady(rows []*row) []*row {
	var out []*row
	for _, alike := range gather.Alike(rows, func(r *row) string {
		if kind, _, ok := strings.Cut(r.name, "/"); ok && r.scope == run.Component && r.status == run.Done {
			return kind
		}
		return r.key()
	}) {
		first := alike[0]
		if n := len(alike); n > 1 {
			name := fmt.Sprintf("%d %s ready", n, topology.ID(first.name).Kind().Plural())
			first = &row{scope: first.scope, name: name, status: run.Done, sum: true}
		}
		out = append(out, first)
	}
	return out
}

// fold replaces up to n components or steps of a status with one row: the first ones of those that are done, else the
// last ones. The steps before the first component are kept: they are few. The others can be one for each component.
func fold(rows []*row, scope run.Scope, status run.Status, name string, n int) []*row {
	var at []int
	components := false
	for i, r := range rows {
		components = components || r.scope == run.Component
		if components && r.scope == scope && r.status == status && !r.sum {
			at = append(at, i)
		}
	}
	if n = min(n, len(at)); n < 2 {
		return rows
	}
	if status == run.Done {
		at = at[:n]
	} else {
		at = at[len(at)-n:]
	}
	sum := &row{scope: scope, name: fmt.Sprintf("%d %s", n, name), status: status, sum: true}
	var out []*row
	for i, r := range rows {
		switch {
		case i == at[0]:
			out = append(out, sum)
		case !slices.Contains(at, i):
			out = append(out, r)
		}
	}
	return out
}
