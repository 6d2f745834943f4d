// Package dag runs functions in the order of their dependencies.
package dag

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// ErrSkipped is the error of a node with a failed dependency.
var ErrSkipped = errors.New("skipped")

// Run calls do for every node of a graph, after the nodes that it needs. Independent nodes run concurrently, at most
// limit at a time, and start in the order of compare. A node with a failed dependency is skipped: its error wraps
// ErrSkipped and names the dependency. Nodes that depend on it are skipped too, with the same error. The result has all
// nodes, with a nil error for those that succeeded. Run fails if the graph has a cycle, or a dependency that is not a
// node.
func Run[N comparable](
	ctx context.Context, needs map[N][]N, compare func(a, b N) int, limit int, do func(context.Context, N) error,
) (map[N]error, error) {
	nodes := slices.SortedFunc(maps.Keys(needs), compare)
	if err := check(nodes, needs); err != nil {
		return nil, err
	}
	type result struct {
		node N
		err  error
	}
	results := make(chan result)
	done := map[N]error{}
	started := map[N]bool{}
	running := 0
	for len(done) < len(nodes) {
		progress := false
		for _, n := range nodes {
			if started[n] || running >= limit || !finished(needs[n], done) {
				continue
			}
			started[n], progress = true, true
			if need, failed := firstFailed(needs[n], done); failed {
				done[n] = fmt.Errorf("%w: %v failed", ErrSkipped, need)
				if errors.Is(done[need], ErrSkipped) {
					done[n] = done[need]
				}
				continue
			}
			running++
			go func() { results <- result{n, do(ctx, n)} }()
		}
		if running > 0 && (!progress || running >= limit) {
			r := <-results
			done[r.node], running = r.err, running-1
		}
	}
	return done, nil
}

func finished[N comparable](needs []N, done map[N]error) bool {
	for _, n := range needs {
		if _, ok := done[n]; !ok {
			return false
		}
	}
	return true
}

func firstFailed[N comparable](needs []N, done map[N]error) (N, bool) {
	for _, n := range needs {
		if done[n] != nil {
			return n, true
		}
	}
	var none N
	return none, false
}

// check fails if a graph has cycles or unknown dependencies. The error contains the path of the cycle.
func check[N comparable](nodes []N, needs map[N][]N) error {
	const visiting, visited = 1, 2
	state := map[N]int{}
	var visit func(n N, path []N) error
	visit = func(n N, path []N) error {
		path = append(path, n)
		switch state[n] {
		case visited:
			return nil
		case visiting:
			return fmt.Errorf("cycle: %v", path[slices.Index(path, n):])
		}
		state[n] = visiting
		for _, need := range needs[n] {
			if _, ok := needs[need]; !ok {
				return fmt.Errorf("%v needs %v, which is unknown", n, need)
			}
			if err := visit(need, path); err != nil {
				return err
			}
		}
		state[n] = visited
		return nil
	}
	for _, n := range nodes {
		if err := visit(n, nil); err != nil {
			return err
		}
	}
	return nil
}
