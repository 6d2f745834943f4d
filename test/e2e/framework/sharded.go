package framework

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BecomesReady waits until all components are ready. A busy machine may not answer kcpctl status in time.
func (s *Setup) BecomesReady(t *testing.T) (now status) {
	t.Helper()
	Eventually(t.Context(), t, func() (err error) {
		if now, err = s.tryStatus(t); err == nil {
			err = now.missing()
		}
		return err
	})
	return now
}

// IsReady waits until all components of a setup are ready, and no others run.
func IsReady(t *testing.T, s *Setup) {
	t.Helper()
	now := s.BecomesReady(t)
	require.Equal(t, s.Name, now.Name)
	require.NotEmpty(t, now.Shards)
	Eventually(t.Context(), t, func() error {
		if running := s.IDs(t); len(running) != len(now.Components) {
			return fmt.Errorf("status has %v, and %v run", now.Components, running)
		}
		return nil
	})
}

// ChangesNothing requires that up reports no changes and makes none.
func ChangesNothing(t *testing.T, s *Setup) {
	written, running := s.Written(t), s.IDs(t)
	s.Up(t).Changed(t, 0)
	require.Equal(t, written, s.Written(t))
	require.Equal(t, running, s.IDs(t))
}

func RendersWhatRuns(t *testing.T, s *Setup) {
	first := s.Kcpctl(t, "render").OK(t).Stdout
	require.True(t, first == s.Kcpctl(t, "render").OK(t).Stdout, "two renderings of the same setup differ") // Equal would print keys
	s.applied(t, first)
}

func LeavesNothing(t *testing.T, s *Setup) {
	s.Kcpctl(t, "down", "--yes", "--purge").OK(t).Quiet(t)
	Eventually(t.Context(), t, func() error {
		if left := s.Left(t.Context(), t); len(left) > 0 {
			return fmt.Errorf("still there:\n  %s", strings.Join(left, "\n  "))
		}
		return nil
	})
}
