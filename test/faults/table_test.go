package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// outcome is the result of a case.
type outcome struct {
	scenario, kind string
	// hit means that a request has failed.
	hit bool
	// code is the exit code of the run with the fault, or -1 if it was killed.
	code int
	// repeats is the number of reruns.
	repeats   int
	converged bool
}

// table has the outcomes of the matrix.
type table struct {
	mu   sync.Mutex
	rows []outcome
}

func (t *table) add(o outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, o)
}

// String returns a table with a line for each kind of fault in each scenario.
func (t *table) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out strings.Builder
	line := func(cells ...any) { fmt.Fprintf(&out, "%-10s %-14s %6v %6v  %-34s %8v %10v\n", cells...) }
	line("scenario", "fault", "cases", "hit", "exit codes of the first run", "repeats", "converged")
	for _, sc := range scenarios() {
		for _, k := range append(kinds(), hangs()) {
			rows := slices.DeleteFunc(slices.Clone(t.rows), func(o outcome) bool { return o.scenario != sc.name || o.kind != k.name })
			if len(rows) == 0 {
				continue
			}
			hit, converged, repeats, codes := 0, 0, 0, map[int]int{}
			for _, o := range rows {
				codes[o.code]++
				repeats = max(repeats, o.repeats)
				if o.hit {
					hit++
				}
				if o.converged {
					converged++
				}
			}
			line(sc.name, k.name, len(rows), hit, distribution(codes), repeats, fmt.Sprintf("%d/%d", converged, len(rows)))
		}
	}
	return out.String()
}

func distribution(codes map[int]int) string {
	var out []string
	for _, c := range slices.Sorted(maps.Keys(codes)) {
		name := fmt.Sprint(c)
		if c == -1 {
			name = "killed"
		}
		out = append(out, fmt.Sprintf("%s: %d", name, codes[c]))
	}
	return strings.Join(out, ", ")
}
