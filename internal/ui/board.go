package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/run"
)

// board is the state of a run: a row for each step and component, in the order in which they were first heard of.
type board struct {
	rows  []*row
	index map[string]*row
}

// row is a step, a component, or several of them in one line.
type row struct {
	scope   run.Scope
	name    string
	status  run.Status
	message string
	needs   []string
	// started and ended are zero for what did not.
	started, ended time.Time
	// sum marks a row that stands for several.
	sum bool
}

func newBoard() *board { return &board{index: map[string]*row{}} }

func (r *row) key() string { return string(r.scope) + " " + r.name }

// over tells whether a status is final.
func over(s run.Status) bool { return s == run.Done || s == run.Failed || s == run.Skipped }

// update takes an event about a step or component in, and returns its row.
func (b *board) update(e run.Event) *row {
	r := &row{scope: e.Scope, name: e.Name}
	if known := b.index[r.key()]; known != nil {
		r = known
	} else {
		b.index[r.key()] = r
		b.rows = append(b.rows, r)
	}
	if e.Status == run.Running && (r.started.IsZero() || over(r.status)) {
		r.started, r.ended = e.Time, time.Time{}
	}
	if over(e.Status) && !over(r.status) {
		r.ended = e.Time
	}
	r.status, r.message = e.Status, e.Message
	if len(e.Needs) > 0 {
		r.needs = e.Needs
	}
	return r
}

// message is what a row says: the event's message, or what a pending component still waits for.
func (b *board) message(r *row) string {
	if r.status != run.Pending || r.message != "" {
		return r.message
	}
	var waits []string
	for _, id := range r.needs {
		if need := b.index[(&row{scope: run.Component, name: id}).key()]; need == nil || need.status != run.Done {
			waits = append(waits, id)
		}
	}
	const shown = 3
	switch n := len(waits); {
	case n == 0:
		return ""
	case n > shown+1:
		return fmt.Sprintf("waits for %s and %d more", strings.Join(waits[:shown], ", "), n-shown)
	}
	return "waits for " + strings.Join(waits, ", ")
}

// fit makes rows fit into a number of lines. What is done gives way first, what failed last.
func fit(rows []*row, lines int) []*row {
	more := []struct {
		status run.Status
		words  string
	}{
		{run.Done, "more ready"},
		{run.Skipped, "more skipped"},
		{run.Pending, "more waiting"},
		{run.Running, "more in progress"},
		{run.Failed, "more failed"},
	}
	for _, m := range more {
		if excess := len(rows) - lines; excess > 0 {
			rows = fold(rows, m.status, m.words, excess+1)
		}
	}
	return rows[max(0, len(rows)-lines):]
}

// fold puts one row in the place of up to n components of a status: those heard of last, but for those that are done, of
// which the oldest are of least interest.
func fold(rows []*row, status run.Status, words string, n int) []*row {
	var at []int
	for i, r := range rows {
		if r.scope == run.Component && r.status == status && !r.sum {
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
	sum := &row{scope: run.Component, name: fmt.Sprintf("%d %s", n, words), status: status, sum: true}
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
