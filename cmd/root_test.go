package cmd

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// What a command could not clean up is reported, whatever else has ended it.
func TestWhatIsLeftIsReported(t *testing.T) {
	ended, end := context.WithCancelCause(t.Context())
	end(nil)
	noReader, end := context.WithCancelCause(t.Context())
	end(errNoReader)
	left := clierr.Remains(errors.New("still running"))
	for name, tc := range map[string]struct {
		ctx  context.Context
		err  error
		code int
		want string
	}{
		"nothing":                          {t.Context(), nil, 0, ""},
		"the command of the user":          {t.Context(), silent(7), 7, ""},
		"its kcp runs on":                  {t.Context(), errors.Join(silent(7), left), 7, "still running"},
		"failed":                           {t.Context(), errors.New("broken"), 1, "broken"},
		"interrupted":                      {ended, fmt.Errorf("wait: %w", context.Canceled), 130, "interrupted"},
		"interrupted, and its kcp runs on": {ended, errors.Join(context.Canceled, left), 130, "interrupted: still running"},
		"its kcp runs on, and no more":     {ended, errors.Join(nil, left), 130, "interrupted: still running"},
		"no reader":                        {noReader, context.Canceled, 130, ""},
		"no reader, and done":              {noReader, nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := interrupted(tc.ctx, tc.err)
			require.Equal(t, tc.code, clierr.Code(err))
			if tc.want == "" {
				require.NoError(t, reported(err))
				return
			}
			require.EqualError(t, reported(err), tc.want)
		})
	}
}
