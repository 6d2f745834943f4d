package controller

import "time"

// hurry divides the intervals in tests.
const hurry = 60

// Hurried returns options with which no test waits long.
func Hurried(o Options) Options {
	o.hurry = hurry
	return o
}

// HurriedMember returns a member that looks and sends heartbeats as often.
func HurriedMember(m Member) Member {
	m.beats = 10 * time.Second / hurry
	return WithAfter(m, func(d time.Duration) <-chan time.Time { return time.After(d / hurry) })
}

// WithAfter returns a member whose observer waits with another function than time.After.
func WithAfter(m Member, after func(time.Duration) <-chan time.Time) Member {
	m.after = after
	return m
}

// StatusPatch is statusPatch for tests.
var StatusPatch = statusPatch
