package clierr_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func TestProblems(t *testing.T) {
	const remove = "run kcpctl remove-shard " + clierr.Names + " or --allow " + clierr.IDs
	alpha := clierr.About("shard/alpha", clierr.Failed, remove, "shard/alpha is gone")
	beta := clierr.About("shard/beta", clierr.Failed, remove, "shard/beta is gone")
	cache := clierr.About("cache-server", clierr.Failed, "add it again", "cache-server is gone")
	plain := errors.New("x")
	problem := func(subject, message, hint string) clierr.Problem {
		return clierr.Problem{Subject: subject, Message: message, Hint: hint}
	}
	ofAlpha := problem("shard/alpha", "shard/alpha is gone", "run kcpctl remove-shard alpha or --allow shard/alpha")
	ofBeta := problem("shard/beta", "shard/beta is gone", "run kcpctl remove-shard beta or --allow shard/beta")
	ofCache := problem("cache-server", "cache-server is gone", "add it again")
	for name, tc := range map[string]struct {
		err  error
		want []clierr.Problem
		hint string
	}{
		"none":   {nil, nil, ""},
		"one":    {alpha, []clierr.Problem{ofAlpha}, ofAlpha.Hint},
		"nested": {errors.Join(nil, errors.Join(alpha, errors.Join(cache))), []clierr.Problem{ofAlpha, ofCache}, ofAlpha.Hint + "; add it again"},
		"equal next steps": {errors.Join(alpha, cache, beta), []clierr.Problem{ofAlpha, ofCache, ofBeta},
			"shard/alpha, shard/beta: run kcpctl remove-shard alpha beta or --allow shard/alpha,shard/beta; add it again"},
		"the outer one is for those without": {clierr.New(clierr.BadInput, "see help", "read: %w", errors.Join(plain, cache)),
			[]clierr.Problem{problem("", "x", "see help"), ofCache}, "see help"},
		"one that adds to it": {clierr.Also(cache, "or not"),
			[]clierr.Problem{problem("cache-server", "cache-server is gone", "add it again; or not")}, "add it again; or not"},
		"a sentence is one": {fmt.Errorf("%w, after %w", plain, cache), []clierr.Problem{problem("cache-server", "x, after cache-server is gone", "add it again")}, "add it again"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, clierr.Problems(tc.err))
			require.Equal(t, tc.hint, clierr.Hint(tc.err))
		})
	}
}
