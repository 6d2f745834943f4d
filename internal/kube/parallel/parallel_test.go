package parallel

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachReturnsEveryErrorOnce(t *testing.T) {
	err := Each(t.Context(), []string{"a", "", "b", "a"}, func(_ context.Context, s string) error {
		if s == "" {
			return nil
		}
		return errors.New(s)
	})
	require.EqualError(t, err, "a\nb")
	ctx, cancel := context.WithCancelCause(t.Context())
	lost := errors.New("lost the lock")
	cancel(lost)
	err = Each(ctx, []string{"a"}, func(context.Context, string) error { t.Error("called"); return nil })
	require.ErrorIs(t, err, lost)
}
