package clierr_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func TestCodeAndHint(t *testing.T) {
	inner := clierr.New(clierr.Conflict, "look", "taken")
	for name, tc := range map[string]struct {
		err  error
		code int
		hint string
	}{
		"nil":                     {nil, 0, ""},
		"any error":               {errors.New("x"), clierr.Failed, ""},
		"ours":                    {inner, clierr.Conflict, "look"},
		"wrapped":                 {fmt.Errorf("a: %w", fmt.Errorf("b: %w", inner)), clierr.Conflict, "look"},
		"joined":                  {errors.Join(errors.New("x"), inner), clierr.Conflict, "look"},
		"the outer one decides":   {clierr.New(clierr.BadInput, "read", "a: %w", inner), clierr.BadInput, "read"},
		"the outer has no hint":   {clierr.New(clierr.BadInput, "", "a: %w", inner), clierr.BadInput, "look"},
		"the outer has no code":   {&clierr.Error{Err: inner}, clierr.Conflict, "look"},
		"no error has a code":     {&clierr.Error{Err: errors.New("x")}, clierr.Failed, ""},
		"hint in the third level": {clierr.New(1, "", "a: %w", fmt.Errorf("b: %w", clierr.New(1, "", "c: %w", inner))), clierr.Failed, "look"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.code, clierr.Code(tc.err))
			require.Equal(t, tc.hint, clierr.Hint(tc.err))
		})
	}
}

func TestNewWraps(t *testing.T) {
	err := clierr.New(clierr.BadInput, "", "read %s: %w", "kcp.yaml", fs.ErrNotExist)
	require.EqualError(t, err, "read kcp.yaml: file does not exist")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestLeft(t *testing.T) {
	left := clierr.Remains(clierr.New(clierr.Failed, "stop it", "still running"))
	other := errors.New("other")
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"nothing is left": {errors.Join(other, clierr.Remains(nil)), ""},
		"alone":           {left, "still running"},
		"joined":          {errors.Join(other, left), "still running"},
		"two, and deeper": {fmt.Errorf("a: %w", errors.Join(left, fmt.Errorf("b: %w", errors.Join(other, left)))), "still running\nstill running"},
	} {
		t.Run(name, func(t *testing.T) {
			got := clierr.Left(tc.err)
			if tc.want == "" {
				require.NoError(t, got)
				return
			}
			require.EqualError(t, got, tc.want)
			require.Contains(t, clierr.Hint(got), "stop it")
		})
	}
}
