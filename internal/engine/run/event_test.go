package run

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// An interruption does not hide what could not be put back.
func TestInterruptedStepReportsWhatIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want Event
	}{
		"interrupted": {context.Canceled, Event{Scope: Step, Name: "shard", Status: Interrupted}},
		"not registered again": {
			errors.Join(context.Canceled, clierr.Remains(errors.New("alpha is not registered"))),
			Event{
				Scope: Step, Name: "shard", Status: Failed, Message: "alpha is not registered",
				Problems: []clierr.Problem{{Message: "alpha is not registered"}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []Event
			r := NewReporter(func(e Event) { got = append(got, e) }, func() time.Time { return time.Time{} })
			require.Equal(t, tc.err, r.Fail("shard", tc.err))
			require.Equal(t, []Event{tc.want}, got)
		})
	}
}
