package framework

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// IsReady waits until status reports that all components are ready. A busy server may not answer it in time.
func IsReady(t *testing.T, s *Setup) {
	Eventually(t.Context(), t, func() error {
		st, err := s.tryStatus(t)
		switch {
		case err != nil:
			return err
		case st.Name != s.Name || !st.Ready || len(st.Shards) == 0:
			return fmt.Errorf("%s is not ready: %v", s.Name, st)
		}
		for _, c := range st.Components {
			if !c.Ready {
				return fmt.Errorf("%s is not ready: %v", c.ID, c)
			}
		}
		if running := s.IDs(t); len(running) != len(st.Components) {
			return fmt.Errorf("status has %v, and %v run", st.Components, running)
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
