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
