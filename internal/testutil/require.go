package testutil

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// RequireError requires an error with an exit code. Its message or its hint must contain every fact: the object that
// the error is about, and what the hint tells users to run, such as "shard/alpha" and "kcpctl remove-shard alpha".
func RequireError(t testing.TB, err error, code int, facts ...string) {
	t.Helper()
	require.Error(t, err)
	hint := clierr.Hint(err)
	require.Equal(t, code, clierr.Code(err), "exit code of %q", err)
	RequireFacts(t, err.Error()+"\nhint: "+hint, facts...)
}

// RequireFacts requires that a text contains every fact.
func RequireFacts(t testing.TB, text string, facts ...string) {
	t.Helper()
	for _, fact := range facts {
		require.Contains(t, text, fact)
	}
}
