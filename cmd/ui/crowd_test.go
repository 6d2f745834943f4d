package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// plainRun is a run in plain lines, of which the test calls tick.
type plainRun struct {
	*plainLines
	clock *testutil.Clock
	lines func() []string
}

func newPlainRun(shards int) *plainRun {
	s, _, stderr := Fake("", 0, 0, utf8Lang)
	clock := testutil.NewClock()
	p := newPlain(s.Err, ProgressOptions{Now: clock.Now})
	close(p.stopped)
	r := &plainRun{p, clock, func() []string { return withoutTimes(stderr.String()) }}
	for i := range shards {
		r.shard(i, run.Pending, "")
	}
	return r
}

func (r *plainRun) shard(i int, s run.Status, message string) {
	r.Observe(run.Event{Time: r.clock.Now(), Scope: run.Component, Name: fmt.Sprintf("shard/s%d", i), Status: s, Message: message})
}

// pass lets time pass, in which lines are printed when they are due.
func (r *plainRun) pass(d time.Duration) {
	for end := r.clock.Now().Add(d); r.clock.Now().Before(end); {
		r.clock.Advance(time.Second)
		r.tick()
	}
}

// A run of a hundred new shards has a line for all of them from time to time, and one when they are ready.
func TestPlainCrowd(t *testing.T) {
	r := newPlainRun(100)
	for i := range 100 {
		r.shard(i, run.Running, "applying 9 objects")
		r.shard(i, run.Running, "started, waits for root-shard")
	}
	require.Empty(t, r.lines(), "they are printed when the line is due")
	r.pass(pause)
	for i := range 100 {
		r.shard(i, run.Running, fmt.Sprintf("0/1 ready: Pod demo-shard-s%d-7d9c: ContainerCreating", i))
	}
	for i := range 50 {
		r.shard(i, run.Done, "ready 1/1")
	}
	r.shard(98, run.Running, "not registered")
	r.pass(pause)
	r.Observe(run.Event{Time: r.clock.Now(), Scope: run.Component, Name: "front-proxy/main", Status: run.Running, Message: "0/2 ready"})
	for i := 50; i < 100; i++ {
		r.shard(i, run.Done, "ready 1/1")
	}
	r.Close()
	require.Equal(t, []string{
		"shards: 0 of 100 ready; 100 waiting: started, waits for root-shard",
		"shards: 50 of 100 ready; 49 waiting: 0/1 ready: Pod demo-shard-…: ContainerCreating; shard/s98 waiting: not registered",
		"front-proxy/main waiting 0/2 ready",
		"shards: 100 of 100 ready",
	}, r.lines())
}

// Failures are printed at once with their names, those with the same reason in one line.
func TestPlainCrowdFails(t *testing.T) {
	r := newPlainRun(20)
	for i := range 20 {
		r.shard(i, run.Running, "0/1 ready")
	}
	r.pass(pause)
	for i := range 6 {
		r.shard(i, run.Failed, fmt.Sprintf("not ready: Pod demo-shard-s%d-x2x: ImagePullBackOff", i))
	}
	r.shard(7, run.Failed, "not ready: OOMKilled")
	r.pass(2 * haste)
	for i := 8; i < 20; i++ {
		r.shard(i, run.Skipped, "shard/s7 failed")
	}
	r.Close()
	require.Equal(t, []string{
		"shards: 0 of 20 ready; 20 waiting: 0/1 ready",
		"shard/s0, shard/s1, shard/s2 and 3 more failed not ready: Pod demo-shard-…: ImagePullBackOff",
		"shard/s7 failed not ready: OOMKilled",
		"shards: 0 of 20 ready; 13 waiting: 0/1 ready; 7 failed",
		"shard/s8, shard/s9, shard/s10 and 9 more skipped shard/s7 failed",
	}, r.lines())
}

// Reasons that differ are not all listed.
func TestPlainCrowdWithManyReasons(t *testing.T) {
	r := newPlainRun(30)
	for i := range 30 {
		r.shard(i, run.Running, fmt.Sprintf("reason %d", i/4))
	}
	r.pass(pause)
	require.Equal(t, []string{
		"shards: 0 of 30 ready; 4 waiting: reason 0; 4 waiting: reason 1; 4 waiting: reason 2; 18 more waiting",
	}, r.lines())
}

// A shard that is added to many is followed as one of a few.
func TestPlainCrowdOfUnchangedComponents(t *testing.T) {
	r := newPlainRun(100)
	r.shard(99, run.Running, "applying 9 objects")
	for i := range 99 {
		r.shard(i, run.Done, "ready 1/1, unchanged")
	}
	r.pass(pause)
	r.shard(99, run.Running, "started")
	r.shard(99, run.Done, "ready 1/1")
	r.Close()
	require.Equal(t, []string{
		"shard/s99 waiting applying 9 objects", "shard/s99 waiting started", "shard/s99 ready 1/1", "components: 99 ready, unchanged",
	}, r.lines())
}

// What is kept for a later line is not printed after what followed it.
func TestPlainCrowdThatBecomesFew(t *testing.T) {
	r := newPlainRun(10)
	r.shard(9, run.Running, "started")
	for i := range 9 {
		r.shard(i, run.Done, "ready 1/1, unchanged")
	}
	r.shard(9, run.Done, "ready 1/1")
	r.pass(2 * pause)
	r.Close()
	require.Equal(t, []string{"shard/s9 ready 1/1", "components: 9 ready, unchanged"}, r.lines())
}

// Shards that change one after another for hours do not print ever more lines.
func TestPlainCrowdOfSlowChanges(t *testing.T) {
	r := newPlainRun(100)
	for i := range 100 {
		for _, message := range []string{"applying 1 object", "started", "1/2 ready"} {
			r.shard(i, run.Running, message)
			r.pass(20 * time.Second)
		}
		r.shard(i, run.Done, "ready 2/2")
	}
	r.Close()
	lines := r.lines()
	require.Less(t, len(lines), 60)
	require.Equal(t, "shards: 0 of 100 ready; shard/s0 waiting: applying 1 object", lines[0])
	require.Equal(t, "shards: 100 of 100 ready", lines[len(lines)-1])
}

// Steps for each of many components have single lines at first, because their number is not known.
func TestPlainCrowdOfSteps(t *testing.T) {
	r := newPlainRun(0)
	for i := range 30 {
		e := run.Event{Time: r.clock.Now(), Scope: run.Step, Name: fmt.Sprintf("leader of shard/s%d", i), Status: run.Running, Message: fmt.Sprintf("demo-shard-s%d-0 is gone", i)}
		r.Observe(e)
		if e.Status, e.Message = run.Done, fmt.Sprintf("demo-shard-s%d-1", i); i > 0 {
			r.Observe(e)
		}
	}
	r.Close()
	lines := r.lines()
	require.Equal(t, "leader of shard/s0 running demo-shard-s0-0 is gone", lines[0])
	require.Equal(t, "leader of shards: 29 of 30 done; leader of shard/s0 running: demo-shard-… is gone", lines[len(lines)-1])
	require.Len(t, lines, 16, strings.Join(lines, "\n"))
}

// A component that starts slowly has three lines in a CI log, whatever its probes report.
func TestPlainThreeLinesForAComponent(t *testing.T) {
	r := newPlainRun(0)
	root := func(s run.Status, message string) {
		r.Observe(run.Event{Time: r.clock.Now(), Scope: run.Component, Name: "root-shard", Status: s, Message: message})
	}
	root(run.Running, "applying a process")
	for i := range 8 {
		root(run.Running, fmt.Sprintf("/readyz: waiting for %d checks", 8-i))
		r.pass(rareFor / 10)
	}
	root(run.Done, "1/1")
	r.Close()
	require.Equal(t, []string{
		"root-shard waiting applying a process",
		"root-shard waiting /readyz: waiting for 8 checks",
		"root-shard ready 1/1",
	}, r.lines())
}

// A message has a line if it lasts, and the end of what it is about has one at once.
func TestPlainMessagesThatLast(t *testing.T) {
	r := newPlainRun(0)
	canary := func(s run.Status, message string) {
		r.Observe(run.Event{Time: r.clock.Now(), Scope: run.Step, Name: "canary", Status: s, Message: message})
	}
	canary(run.Running, "a workspace on 2 shards")
	r.pass(time.Second)
	canary(run.Running, "alpha: scheduling")
	r.pass(time.Second)
	canary(run.Running, "alpha: initializing")
	require.Len(t, r.lines(), 1, "it changes each second")
	r.pass(lastsFor)
	require.Len(t, r.lines(), 2, "the first reason that lasts")
	canary(run.Running, "beta: scheduling")
	r.pass(lastsFor)
	canary(run.Running, "beta: initializing")
	require.Len(t, r.lines(), 2, "not another one at once")
	r.pass(rareFor)
	canary(run.Running, "")
	r.pass(quietFor)
	canary(run.Done, "ready")
	r.pass(quietFor)
	r.Close()
	require.Equal(t, []string{
		"canary running a workspace on 2 shards", "canary running alpha: initializing",
		"canary running beta: initializing", "canary done ready",
	}, r.lines())
}
