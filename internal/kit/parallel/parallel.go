// Package parallel calls a function for many items concurrently.
package parallel

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// Limit is the number of concurrent calls of Each, and so of requests to a cluster. It replaces a rate limit on the
// client: API servers have their own.
const Limit = 16

// Map calls do for every item, at most limit at a time, and returns the results in the order of the items. It always
// calls do for all of them. If the results are errors, Join makes one of them.
func Map[T, R any](limit int, items []T, do func(T) R) []R {
	results := make([]R, len(items))
	var g errgroup.Group
	g.SetLimit(limit)
	for i, item := range items {
		g.Go(func() error {
			results[i] = do(item)
			return nil
		})
	}
	_ = g.Wait() // what failed is in the results
	return results
}

// Each calls do for all items, up to 16 at a time. It does not stop at the first error: it returns all of them as Join
// does. When ctx ends, Each returns its cause.
func Each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	errs := Map(Limit, items, func(item T) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return do(ctx, item)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return Join(errs)
}

// Join joins errors in their order, and equal ones once. A single error is returned unchanged.
func Join(errs []error) error {
	var out []error
	seen := map[string]bool{}
	for _, err := range errs {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			out = append(out, err)
		}
	}
	if len(out) == 1 {
		return out[0]
	}
	return errors.Join(out...)
}

// Indices are the indices of a slice, for calls of Each that fill in another slice.
func Indices[T any](all []T) []int {
	out := make([]int, len(all))
	for i := range out {
		out[i] = i
	}
	return out
}
