package record_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func TestEndOfARun(t *testing.T) {
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	begun := record.Run{Command: "kcpctl up", PID: 7, Since: began}
	for name, tc := range map[string]struct {
		why    error
		result record.RunResult
		text   string
	}{
		"failed": {errors.New("shard/alpha: not ready: 0/1 ready\n    log of the component\nmore"), record.RunFailed,
			"shard/alpha: not ready: 0/1 ready"},
		"interrupted":       {clierr.New(clierr.Interrupted, "", "interrupted"), record.RunInterrupted, ""},
		"canceled":          {fmt.Errorf("get: %w", context.Canceled), record.RunInterrupted, ""},
		"a very long error": {errors.New(strings.Repeat("é", 400)), record.RunFailed, strings.Repeat("é", 300) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			want := begun
			want.Ended, want.Result, want.Error = began.Add(time.Minute), tc.result, tc.text
			require.Equal(t, &want, begun.End(tc.why, began.Add(time.Minute)))
			require.Equal(t, &want, record.Unfinished(&want))
		})
	}
	killed := begun
	killed.Result = record.RunInterrupted
	require.Equal(t, &killed, record.Unfinished(&begun), "a process that was killed said nothing")
	require.Equal(t, record.RunInterrupted, record.Unfinished(nil).Result)
}
