package cluster

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A finalizer can keep an object forever. The user learns which, and not every quarter of a second.
func TestWaitForTellsWhatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		c := &Client{KubeContext: "dev", notify: func(format string, args ...any) {
			told = append(told, fmt.Sprintf(format, args...))
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		err := c.WaitFor(ctx, func() (string, error) {
			switch passed := time.Since(began); {
			case passed < 10*time.Second:
				return "a to be gone", nil
			case passed < time.Minute:
				return "b to be gone", nil
			}
			return "", nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{"waiting for b to be gone (context dev)"}, told)
		require.ErrorContains(t, c.WaitFor(ctx, func() (string, error) { return "c to be gone", nil }), "wait for c to be gone")
	})
}
