package controller

import "time"

// WithAfter returns a member whose observer waits with another function than time.After.
func WithAfter(m Member, after func(time.Duration) <-chan time.Time) Member {
	m.after = after
	return m
}
