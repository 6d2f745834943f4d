package testutil_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// recorder is a test that notes that it failed, and ends its goroutine as a real one does.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) FailNow()              { r.failed = true; runtime.Goexit() }

func TestRequireError(t *testing.T) {
	conflict := fmt.Errorf("up: %w", clierr.New(clierr.Conflict, "run kcpctl remove-shard alpha", "shard/alpha is in use"))
	for name, tc := range map[string]struct {
		err    error
		code   int
		facts  []string
		failed bool
	}{
		"facts of message and hint": {conflict, clierr.Conflict, []string{"shard/alpha", "kcpctl remove-shard alpha"}, false},
		"no facts":                  {errors.New("any"), clierr.Failed, nil, false},
		"no error":                  {nil, 0, nil, true},
		"another exit code":         {conflict, clierr.Failed, nil, true},
		"a fact is missing":         {conflict, clierr.Conflict, []string{"shard/alpha", "shard/beta"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, done := &recorder{TB: t}, make(chan struct{})
			go func() {
				defer close(done)
				testutil.RequireError(r, tc.err, tc.code, tc.facts...)
			}()
			<-done
			require.Equal(t, tc.failed, r.failed)
		})
	}
}
