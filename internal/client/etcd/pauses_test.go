package etcd

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// dripping is a body that arrives in parts, each after a time.
type dripping struct {
	ctx   context.Context
	after []time.Duration
}

func (d *dripping) Read(b []byte) (int, error) {
	if len(d.after) == 0 {
		return 0, io.EOF
	}
	select {
	case <-time.After(d.after[0]):
	case <-d.ctx.Done():
		return 0, context.Cause(d.ctx)
	}
	d.after = d.after[1:]
	b[0] = 'x'
	return 1, nil
}

// An answer may take long, and its reader too, but not pause.
func TestOnlyAPauseEndsAnAnswer(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		before time.Duration // until the answer begins
		after  []time.Duration
		work   time.Duration // of the caller, after each part
		want   error
	}{
		"slow":           {after: []time.Duration{9 * s, 9 * s, 9 * s}},
		"a slow caller":  {after: []time.Duration{s, s}, work: 20 * s},
		"never begins":   {before: 11 * s, want: errNoAnswer},
		"a pause":        {after: []time.Duration{s, 11 * s, s}, want: errNoAnswer},
		"slow to begin":  {before: 9 * s, after: []time.Duration{9 * s}},
		"nothing to say": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, arrives, stop := withPauses(t.Context(), requestTimeout, errNoAnswer)
				defer stop()
				time.Sleep(tc.before)
				body, err := arrives(&dripping{ctx, tc.after}), context.Cause(ctx)
				for err == nil {
					_, err = body.Read(make([]byte, 1))
					time.Sleep(tc.work)
				}
				if tc.want == nil {
					tc.want = io.EOF
				}
				require.ErrorIs(t, err, tc.want)
				if tc.want == io.EOF {
					require.NoError(t, ctx.Err())
				}
			})
		})
	}
}
