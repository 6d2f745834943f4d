package local

import (
	"context"
	"time"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// The rules for a process that ends while a run waits for it: it may have been started before what it needs.
const (
	maxRestarts = 3
	// fastExit is the age below which an end is no accident: a second one in a row ends the attempts.
	fastExit = 5 * time.Second
	// calm is the age from which on earlier ends are forgiven.
	calm = 10 * time.Minute
)

// crashes counts the ends of a process that was not meant to end.
type crashes struct {
	count, fast int
	// again is when it is started again; zero while it runs.
	again  time.Time
	gaveUp bool
}

// note takes note of an end.
func (c *crashes) note(now time.Time, age time.Duration) {
	if !c.again.IsZero() || c.gaveUp {
		return
	}
	if age > calm {
		*c = crashes{}
	}
	c.count++
	c.fast++
	if age >= fastExit {
		c.fast = 0
	}
	c.gaveUp = c.count > maxRestarts || c.fast > 1
	c.again = now.Add(time.Second << (c.count - 1))
}

// life is how a component's process is.
type life struct {
	*processRecord
	alive bool
	// reason is why it is not alive; final says that it stays so until the next up.
	reason string
	final  bool
}

// observe looks at a component's process. One that crashed is started again by the run that started it, and by one that keeps
// others out.
func (r *Runtime) observe(ctx context.Context, c *topology.Component) (life, error) {
	p := r.process(c.Object())
	p.mu.Lock()
	defer p.mu.Unlock()
	rec, err := r.layout.record(c.Object())
	if err != nil {
		return life{}, err
	}
	switch {
	case rec == nil:
		return life{reason: "not running", final: true}, nil
	case rec.alive() && rec.Stopping:
		return life{processRecord: rec, reason: "stopping", final: true}, nil
	case rec.alive():
		return life{processRecord: rec, alive: true}, nil
	}
	if x := reap(rec.PID); x != nil {
		rec.Exit = x
		if err := r.layout.writeRecord(c.Object(), rec); err != nil {
			return life{}, err
		}
	}
	if rec.Stopping || !rec.StartedAt.Equal(p.startedAt) {
		l, err := r.lost(c, rec)
		if err != nil || l.alive || rec.Stopping || !r.isLocked() {
			return l, err
		}
		// It ran when this run began, and nobody else may start it now.
	}
	return r.restart(ctx, p, c, rec)
}

// lost is the life of a process that another run started and that is not where the record says.
func (r *Runtime) lost(c *topology.Component, rec *processRecord) (life, error) {
	dead := life{processRecord: rec, reason: rec.ended(), final: true}
	w, err := r.layout.workloadOf(c)
	if err != nil || w == nil {
		return dead, err
	}
	if live, rec, err := r.layout.locate(w); err != nil || len(live) > 0 && rec != nil && rec.alive() {
		return life{processRecord: rec, alive: err == nil}, err
	}
	return dead, nil
}

// ended says how a process ended, as far as is known.
func (rec *processRecord) ended() string {
	if rec.Exit != nil {
		return rec.Exit.String()
	}
	return "not running any more"
}

// restart starts a crashed process again when it is time to.
func (r *Runtime) restart(ctx context.Context, p *process, c *topology.Component, rec *processRecord) (life, error) {
	now := r.options.Now()
	p.crashes.note(now, now.Sub(rec.StartedAt))
	dead := life{processRecord: rec, reason: rec.ended()}
	if p.crashes.gaveUp {
		dead.reason += ", again and again"
		dead.final = true
		return dead, nil
	}
	dead.reason += ", starting again"
	if now.Before(p.crashes.again) || ctx.Err() != nil {
		return dead, nil
	}
	w, err := r.layout.workloadOf(c)
	if err != nil || w == nil {
		return dead, err
	}
	p.crashes.again = time.Time{}
	return dead, r.start(p, w, &rec.Binary, rec.Restarts+1)
}
