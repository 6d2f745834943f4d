package dag_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/dag"
)

func TestRunKeepsTheOrder(t *testing.T) {
	needs := map[string][]string{"etcd": nil, "cache": {"etcd"}, "root": {"etcd", "cache"}, "alpha": {"root"}, "beta": {"root"}}
	var mu sync.Mutex
	var order []string
	errs, err := dag.Run(t.Context(), needs, strings.Compare, 10, func(_ context.Context, n string) error {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, n)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, errs, len(needs))
	for n, before := range needs {
		require.NoError(t, errs[n])
		for _, b := range before {
			require.Less(t, slices.Index(order, b), slices.Index(order, n), "%s before %s", b, n)
		}
	}
}

func TestRunSkipsDependants(t *testing.T) {
	boom := errors.New("boom")
	needs := map[string][]string{"root": nil, "alpha": {"root"}, "proxy": {"alpha"}, "etcd": nil}
	errs, err := dag.Run(t.Context(), needs, strings.Compare, 2, func(_ context.Context, n string) error {
		if n == "root" {
			return boom
		}
		return nil
	})
	require.NoError(t, err)
	require.ErrorIs(t, errs["root"], boom)
	require.EqualError(t, errs["alpha"], "skipped: root failed")
	require.EqualError(t, errs["proxy"], "skipped: root failed", "alpha was skipped, it did not fail")
	require.NoError(t, errs["etcd"])
}

// Both branches wait for each other: one at a time would never end.
func TestRunRunsBranchesAtOnce(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	_, err := dag.Run(t.Context(), map[int][]int{1: nil, 2: nil}, cmp.Compare[int], 2, func(context.Context, int) error {
		both.Done()
		both.Wait()
		return nil
	})
	require.NoError(t, err)
}

func TestRunHoldsTheLimit(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	needs := map[int][]int{}
	for i := range 20 {
		needs[i] = nil
	}
	_, err := dag.Run(t.Context(), needs, cmp.Compare[int], 3, func(context.Context, int) error {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		mu.Lock()
		running--
		mu.Unlock()
		return nil
	})
	require.NoError(t, err)
	require.LessOrEqual(t, most, 3)
}

func TestRunRefusesBadGraphs(t *testing.T) {
	for name, tc := range map[string]struct {
		needs map[string][]string
		err   string
	}{
		"cycle":   {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b"}}, "cycle: [b c b]"},
		"unknown": {map[string][]string{"a": {"x"}}, "a needs x, which is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dag.Run(t.Context(), tc.needs, strings.Compare, 1, func(context.Context, string) error { return nil })
			require.EqualError(t, err, tc.err)
		})
	}
}
