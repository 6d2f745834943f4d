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

// pause is the least time between two lines of a crowd. Later it is a share of the time since the start, so that an
// upgrade of some hours does not print more and more lines.
const (
	pause      = 10 * time.Second
	pauseShare = 10
)

// haste is how soon failures are printed. They come together, so the failures of one moment have one line.
const haste = time.Second

// crowd has the components of a kind, or the steps for each of them. If there are many of them, the lines about them
// are printed from time to time, and only with their numbers.
type crowd struct {
	scope  run.Scope
	family string // what their names have before the slash
	rows   []*row
	// changed are the rows whose state has changed since the last line.
	changed []*row
	// due is when the next line is due, if something has changed.
	due     time.Time
	printed string
}

// untouched reports whether the run had nothing to do for a component.
func (r *row) untouched() bool {
	return r.scope == run.Component && r.status == run.Done && r.started.IsZero()
}

// many reports whether the run changes many of them, or may.
func (c *crowd) many() bool {
	return c.count(func(r *row) bool { return !r.untouched() }) > gather.Most
}

// ended reports whether all components have reached their last state. The steps of a crowd begin one after another.
func (c *crowd) ended() bool {
	return c.scope == run.Component && c.count(func(r *row) bool { return final(r.status) }) == len(c.rows)
}

func (c *crowd) count(is func(*row) bool) int {
	n := 0
	for _, r := range c.rows {
		if is(r) {
			n++
		}
	}
	return n
}

// change remembers the change of a row of a run that has begun at a time.
func (c *crowd) change(r *row, now, begun time.Time) {
	due := now.Add(max(pause, now.Sub(begun)/pauseShare))
	if r.status == run.Failed {
		due = now.Add(haste)
	}
	if len(c.changed) == 0 || due.Before(c.due) {
		c.due = due
	}
	if !slices.Contains(c.changed, r) {
		c.changed = append(c.changed, r)
	}
}

// text is a line such as
//
//	shards: 12 of 100 ready; 34 waiting: started; shard/a, shard/b waiting: 0/1 ready; 3 failed
func (c *crowd) text() string {
	done := word(&row{scope: c.scope, status: run.Done})
	parts := []string{fmt.Sprintf("%d of %d %s", c.count(func(r *row) bool { return r.status == run.Done }),
		len(c.rows), done)}
	parts = append(parts, c.waits()...)
	for _, s := range []run.Status{run.Failed, run.Skipped} {
		if n := c.count(func(r *row) bool { return r.status == s }); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return c.title() + ": " + strings.Join(parts, "; ")
}

// title is the plural of the kind: shards, or leader of shards.
func (c *crowd) title() string {
	i := strings.LastIndexByte(c.family, ' ') + 1
	return c.family[:i] + topology.Kind(c.family[i:]).Plural()
}

// waits are what those that are in progress wait for: the reasons of most of them, with the names of a few.
func (c *crowd) waits() []string {
	names := map[string][]string{}
	var reasons []string
	for _, r := range c.rows {
		if r.status != run.Running {
			continue
		}
		_, name, _ := strings.Cut(r.name, "/")
		first, _, _ := strings.Cut(r.message, "\n")
		reason := gather.Elide(first, name)
		if names[reason] == nil {
			reasons = append(reasons, reason)
		}
		names[reason] = append(names[reason], r.name)
	}
	slices.SortStableFunc(reasons, func(a, b string) int { return cmp.Compare(len(names[b]), len(names[a])) })
	var parts []string
	waiting, others := " "+word(&row{scope: c.scope, status: run.Running}), 0
	for i, reason := range reasons {
		who := names[reason]
		if i >= gather.Listed {
			others += len(who)
			continue
		}
		part := fmt.Sprint(len(who))
		if len(who) <= gather.Listed {
			part = strings.Join(who, ", ")
		}
		parts = append(parts, strings.TrimSuffix(part+waiting+": "+reason, ": "))
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("%d more%s", others, waiting))
	}
	return parts
}
