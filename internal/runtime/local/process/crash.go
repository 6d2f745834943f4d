package process

import "time"

// The limits of restarts. A first crash is normal: the process may have been started before one that it depends on.
const (
	maxRestarts = 3
	// FastExit is the age below which the end of a process counts as fast. The second fast one in a row is final.
	FastExit = 5 * time.Second
	// forgetAfter is the age at which earlier crashes are forgotten.
	forgetAfter = 10 * time.Minute
)

// Crashes decides when a process that ended unexpectedly is restarted. It is part of the record of the process, so that
// all runs that watch it count the same crashes.
type Crashes struct {
	Count int `json:"count,omitempty"`
	// Fast is how many of the last ones were fast.
	Fast int `json:"fast,omitempty"`
	// At is when the last one was recorded. It is zero while the process is running.
	At time.Time `json:"at,omitzero"`
}

// Record records the end of a process of some age. Recording the same end again has no effect.
func (c *Crashes) Record(now time.Time, age time.Duration) {
	if !c.At.IsZero() || c.GaveUp() {
		return
	}
	if age > forgetAfter {
		*c = Crashes{}
	}
	c.Count++
	c.Fast++
	if age >= FastExit {
		c.Fast = 0
	}
	c.At = now
}

// GaveUp reports whether the process is no longer restarted.
func (c *Crashes) GaveUp() bool { return c.Count > maxRestarts || c.Fast > 1 }

// Waiting reports whether it is too early to restart the process. A clock that was set back does not make it longer.
func (c *Crashes) Waiting(now time.Time) bool {
	if c.At.IsZero() || c.GaveUp() {
		return false
	}
	waited := now.Sub(c.At)
	return waited >= 0 && waited < time.Second<<(c.Count-1)
}

// Restarted records that the process was restarted.
func (c *Crashes) Restarted() { c.At = time.Time{} }
