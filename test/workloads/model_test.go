//go:debug randseednop=0

// Package workloads_test runs random steps against transparent multi-cluster: users, clusters, networks, restarts,
// backups and time. The controller and the syncers are the real ones; kcp and the API servers of the clusters are
// fakes, whose pods are simulated, in a bubble with virtual time. Rules from outside require what the project promises,
// at each moment: see rules.
package workloads_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/kcpctl/kcpctl/test/random"
)

var (
	wanted  = flag.Int("model.steps", 20, "number of steps")
	told    = flag.Bool("model.log", false, "print the log of a step immediately")
	without = flag.String("model.without", "", "rules and steps to leave out, separated by commas: see -model.list")
	only    = flag.String("model.only", "", "rules to check, separated by commas. Default: all")
	allowed = flag.String("model.steps-only", "", "steps to take, separated by commas. Default: all")
	shown   = flag.String("model.show", "", "log how the objects of kcp change whose workspace, path and name contain a text")
	listed  = flag.Bool("model.list", false, "print the names of the rules and the steps")
)

// memory is how many bytes a long run uses before it collects garbage more often.
const memory = 3 << 30

func TestModel(t *testing.T) {
	if *listed {
		t.Logf("rules: %s", strings.Join(ruleNames(), ", "))
		t.Logf("steps: %s", strings.Join(stepNames(), ", "))
		return
	}
	quiet(t)
	// Goroutines that are ready at the same virtual time run in almost the same order each time.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(2000))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memory))
	taken, began := &tally{counts: map[string]int{}}, time.Now()
	checks := &random.Checks{Dir: "test/workloads", Wanted: *wanted, Steps: func() int { return taken.steps }}
	checks.Check = func(rt *rapid.T, seed uint64) {
		random.Seed(t, seed)
		bubble(t, func() { play(rt, taken, nil) })
	}
	checks.Run(t)
	t.Logf("%d steps, %s of virtual time, in %s", taken.steps, taken.passed.Round(time.Minute), time.Since(began).Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(taken.counts)) {
		t.Logf("%8d %s", taken.counts[name], name)
	}
}

// tally counts the steps of all checks. failed is the number of the first failed step, and found is what the rules have
// found of a planted defect.
type tally struct {
	steps, failed int
	found         string
	passed        time.Duration
	counts        map[string]int
}

// bubble runs a check in a synctest bubble and passes its panic on: rapid compares failures by the origin of the panic,
// and a check that has run out of data panics too.
func bubble(t *testing.T, check func()) {
	var ended any
	defer func() {
		if r := recover(); r != nil && ended == nil { // a goroutine has not ended
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
			panic(r)
		}
		if ended != nil {
			panic(ended)
		}
	}()
	synctest.Test(t, func(*testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if ended = recover(); ended == nil {
					return
				}
				if kind := fmt.Sprintf("%T", ended); !strings.HasPrefix(kind, "rapid.") {
					fmt.Printf("panic: %v\n%s", ended, debug.Stack())
				}
			}()
			check()
		}()
		<-done
	})
}

// game is a sequence of steps.
type game struct {
	*world
	t *rapid.T
	*tally
}

type step struct {
	weight int
	name   string
	do     func(*game)
}

var steps = slices.Concat(userSteps, clusterSteps, mishapSteps)

func stepNames() []string {
	var out []string
	for _, s := range steps {
		out = append(out, s.name)
	}
	return out
}

// lists reports whether a list of names, separated by commas, has one.
func lists(list, name string) bool { return slices.Contains(strings.Split(list, ","), name) }

// play takes random steps, with a planted defect if there is one.
func play(t *rapid.T, taken *tally, planted *defect) {
	// Drawn before anything starts: a check that has run out of data panics here.
	recorded := rapid.SampledFrom([]string{"demo-x", ""}).Draw(t, "ID of the setup")
	clusters := rapid.IntRange(1, 3).Draw(t, "clusters")
	w := newWorld()
	w.log = t.Logf
	w.recorded = recorded
	w.planted = planted
	g := &game{world: w, t: t, tally: taken}
	began := time.Now()
	defer func() { taken.passed += time.Since(began) }()
	defer w.end()
	w.begin(clusters)
	if planted != nil {
		go w.harm(planted)
	}
	g.judge()
	var names []string
	for _, s := range steps {
		if lists(*without, s.name) || *allowed != "" && !lists(*allowed, s.name) ||
			planted != nil && planted.steps != "" && !lists(planted.steps, s.name) {
			continue
		}
		for range s.weight {
			names = append(names, s.name)
		}
	}
	t.Repeat(map[string]func(*rapid.T){"step": func(t *rapid.T) {
		g.t = t
		name := rapid.SampledFrom(names).Draw(t, "step")
		if g.found != "" {
			return
		}
		taken.steps++
		taken.counts[name]++
		i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
		steps[i].do(g)
		g.stopSyncers()
		g.pass(rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, 0, 200 * time.Millisecond, time.Minute}).Draw(t, "then"))
		g.judge()
	}})
	g.t = t
	if g.found != "" {
		return
	}
	g.settle(g)
	g.judge()
}

// judge ends the check if a rule is violated.
func (g *game) judge() {
	g.printLines()
	problems := g.violations()
	if len(problems) == 0 {
		return
	}
	if g.planted != nil {
		g.found = problems[0]
		return
	}
	if g.failed == 0 {
		g.failed = max(g.steps, 1)
		fmt.Printf("the first failure is at step %d: %s\n", g.steps, problems[0])
	}
	for _, p := range problems {
		g.logf("VIOLATION: %s", p)
	}
	g.t.Fatalf("%s", problems[0])
}

func (g *game) draw(what string, of ...string) string { return rapid.SampledFrom(of).Draw(g.t, what) }

// chance returns true once in so many times. Shrinking tends to false.
func (g *game) chance(what string, in int) bool {
	return rapid.IntRange(0, in-1).Draw(g.t, what) == in-1
}

// pick draws one of several things. It returns false if there are none.
func pick[T any](g *game, what string, of []T) (T, bool) {
	var none T
	if len(of) == 0 {
		return none, false
	}
	return of[rapid.IntRange(0, len(of)-1).Draw(g.t, what)], true
}

// pass lets time pass.
func (g *game) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
