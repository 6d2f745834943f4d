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

// Crashes decides when a process that ended unexpectedly is restarted.
type Crashes struct {
	count, fast int
	// restartAt is zero while the process is running.
	restartAt time.Time
	gaveUp    bool
}

// Record records the end of a process of some age. Recording the same end again has no effect.
func (c *Crashes) Record(now time.Time, age time.Duration) {
	if !c.restartAt.IsZero() || c.gaveUp {
		return
	}
	if age > forgetAfter {
		*c = Crashes{}
	}
	c.count++
	c.fast++
	if age >= FastExit {
		c.fast = 0
	}
	c.gaveUp = c.count > maxRestarts || c.fast > 1
	c.restartAt = now.Add(time.Second << (c.count - 1))
}

// GaveUp reports whether the process is no longer restarted.
func (c *Crashes) GaveUp() bool { return c.gaveUp }

// Due reports whether it is time to restart the process.
func (c *Crashes) Due(now time.Time) bool { return !now.Before(c.restartAt) }

// Restarted records that the process was restarted.
func (c *Crashes) Restarted() { c.restartAt = time.Time{} }
