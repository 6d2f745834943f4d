// Package parallel calls a function for many items at the same time.
package parallel

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
)

// limit is the number of calls at the same time, and so of requests to a cluster. It replaces a rate limit on the
// client: API servers have their own.
const limit = 16

// Each calls do for all items, up to 16 at a time. It does not stop at the first error: it returns all of them in the
// order of the items, and equal ones once. When ctx ends, Each returns its cause.
func Each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	errs := make([]error, len(items))
	var g errgroup.Group
	g.SetLimit(limit)
	for i, it := range items {
		g.Go(func() error {
			if errs[i] = ctx.Err(); errs[i] == nil {
				errs[i] = do(ctx, it)
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	seen := map[string]bool{}
	errs = slices.DeleteFunc(errs, func(err error) bool {
		if err == nil || seen[err.Error()] {
			return true
		}
		seen[err.Error()] = true
		return false
	})
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// Indices are the indices of a slice, for calls of Each that fill in another slice.
func Indices[T any](all []T) []int {
	out := make([]int, len(all))
	for i := range out {
		out[i] = i
	}
	return out
}
