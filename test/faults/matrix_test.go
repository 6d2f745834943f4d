package faults

import (
	"flag"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The values of -faults.
const (
	modeSlice = "slice" // every 19th request fails once, in one way or another, and none gets no answer
	modeFew   = "few"   // every third request fails once, in one way or another
	modeSome  = "some"  // every request fails once, in one way or another
	modeAll   = "all"   // every request fails in every way
)

var mode = flag.String("faults", modeSlice,
	"which requests fail: slice (every 19th), few (every third), some (each in one way) or all (each in every way)")

const (
	// workers is the most concurrent cases: commands wait more than they compute.
	workers = 10
	// perWorker is how many cases a worker has at least: it begins with an installation of its own.
	perWorker = 3
	// patientWorkers is the same for cases that only wait for a minute.
	patientWorkers = 12
)

// namespacePrefix is the prefix of all namespaces of the tests.
const namespacePrefix = "faults-"

// TestFaults is the matrix.
func TestFaults(t *testing.T) {
	t.Parallel()
	require.Contains(t, []string{modeSlice, modeFew, modeSome, modeAll}, *mode)
	results := &table{}
	for i, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			want := sc.undisturbed(t)
			t.Logf("an undisturbed run makes %d requests", len(want.requests))
			cases := faults(want.requests, *mode, i)
			sc.matrix(t, want, cases, min(workers, len(cases)/perWorker+1), results)
		})
	}
	others, err := shared.others(t.Context())
	require.NoError(t, err)
	require.Empty(t, others, "objects of kinds that kcpctl never writes")
	t.Logf("\n%s", results)
}

// TestNoAnswer is the slow part of the matrix: some requests get no response, and kcpctl must time out.
func TestNoAnswer(t *testing.T) {
	if *mode == modeSlice {
		t.Skip("each case takes a minute: run with -faults=few")
	}
	t.Parallel()
	every := map[string]int{modeFew: 50, modeSome: 25, modeAll: 5}[*mode]
	results := &table{}
	var all sync.WaitGroup
	for _, sc := range scenarios() {
		all.Go(func() {
			t.Run(sc.name, func(t *testing.T) {
				want := sc.undisturbed(t)
				var some []*fault
				for n := 1; n <= len(want.requests); n += every {
					some = append(some, &fault{hangs(), n})
				}
				sc.matrix(t, want, some, patientWorkers, results)
			})
		})
	}
	all.Wait()
	t.Logf("\n%s", results)
}

// matrix runs the cases of a scenario concurrently. Each worker has its own places.
func (sc *scenario) matrix(t *testing.T, want *undisturbed, cases []*fault, workers int, results *table) {
	todo := make(chan *fault, len(cases))
	for _, f := range cases {
		todo <- f
	}
	close(todo)
	var all sync.WaitGroup
	for range min(workers, len(cases)) {
		all.Go(func() {
			var p *place
			for f := range todo {
				t.Run(f.String(), func(sub *testing.T) {
					if p == nil {
						p = sc.base(t, sub)
					}
					mine := p
					p = nil // not reused if the case fails
					if sc.try(sub, mine, want, f, results); sc.restore != nil {
						p = mine
					}
				})
			}
		})
	}
	all.Wait()
}

// faults returns the faults of a run with these requests: each request fails in every way that fits it, or in one of
// them in turn.
func faults(requests []request, mode string, offset int) []*fault {
	every := map[string]int{modeSlice: 19, modeFew: 3, modeSome: 1, modeAll: 1}[mode]
	var out []*fault
	for i, r := range requests {
		fitting := slices.DeleteFunc(kinds(), func(k kind) bool { return !r.fits[k.name] })
		if i%every != offset%every {
			continue
		}
		if mode != modeAll {
			at := (i + offset) % len(fitting)
			fitting = fitting[at : at+1]
		}
		for _, k := range fitting {
			out = append(out, &fault{k, i + 1})
		}
	}
	return out
}
