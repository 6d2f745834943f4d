package syncer

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// State is the state that a syncer reports.
type State struct {
	// Orphans is the number of objects in the cluster without an object in kcp, and OrphanMessage how a user removes
	// them. Empty: there are none.
	Orphans       int    `json:"orphans,omitempty"`
	OrphanMessage string `json:"orphanMessage,omitempty"`
	// OtherSetup is why nothing is written to the cluster: it runs the objects of these workspaces for another setup.
	// Empty: it does not.
	OtherSetup string `json:"otherSetup,omitempty"`
	// Failures are the endpoints and resources that cannot be read now, with the errors.
	Failures []string `json:"failures,omitempty"`
	// Objects is the number of leaves, and Waiting the number of objects in the queue.
	Objects int `json:"objects"`
	Waiting int `json:"waiting"`
}

// report tells the state of the syncer.
func (s *syncer) report() {
	if s.Report == nil || s.up == nil || s.bound == nil || s.down == nil {
		return
	}
	state := State{OtherSetup: s.member.twice(), Waiting: s.queue.Len()}
	if o := s.orphans.last.Load(); o != nil {
		state.Orphans = o.count
		state.OrphanMessage = o.message
	}
	if err := s.member.blocked(); err != nil && state.OtherSetup == "" {
		state.Failures = append(state.Failures, err.Error())
	}
	for _, f := range slices.Concat(s.up.Failures(), s.bound.Failures(), s.down.Failures()) {
		state.Failures = append(state.Failures, f.Error())
	}
	slices.SortFunc(state.Failures, cmp.Compare[string])
	for _, r := range s.synced() {
		state.Objects += s.up.Classes(r)[""]
	}
	s.Report(state)
}

// Direction is where a change goes.
type Direction string

// The directions: the spec goes down to the physical cluster, and the status goes up to kcp.
const (
	Down Direction = "down"
	Up   Direction = "up"
)

// Directions are all of them.
func Directions() []Direction { return []Direction{Down, Up} }

// change is a change of an item that has not been written to the other side.
type change struct {
	Direction
	item
}

// latency has since when changes wait that the watches have shown. A change that comes while a worker has the item
// waits for the next one.
type latency struct {
	mu               sync.Mutex
	waiting, working map[change]time.Time
}

func newLatency() *latency {
	return &latency{waiting: map[change]time.Time{}, working: map[change]time.Time{}}
}

// saw records a change, unless an earlier one still waits.
func (l *latency) saw(d Direction, i item, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, waits := l.waiting[change{d, i}]; !waits {
		l.waiting[change{d, i}] = now
	}
}

// begin records that a worker has an item. Changes of which the last attempt failed keep their time.
func (l *latency) begin(i item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range Directions() {
		c := change{d, i}
		since, waits := l.waiting[c]
		if _, again := l.working[c]; waits && !again {
			l.working[c] = since
		}
		delete(l.waiting, c)
	}
}

// wrote returns how long a change has waited that is written now, or zero if none has.
func (l *latency) wrote(d Direction, i item, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, waited := l.working[change{d, i}]
	if !waited {
		return 0
	}
	delete(l.working, change{d, i})
	return now.Sub(since)
}

func (l *latency) done(i item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range Directions() {
		delete(l.working, change{d, i})
	}
}

// observe reports that a change is written to the other side.
func (s *syncer) observe(d Direction, i item) {
	now := s.Now()
	if took := s.latency.wrote(d, i, now); took > 0 && s.Observe != nil {
		s.Observe(d, took)
	}
}
