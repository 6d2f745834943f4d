package framework

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Unchanged requires that all previous instances still run.
func (s *Setup) Unchanged(t *testing.T, then map[string]string) {
	t.Helper()
	now := s.IDs(t)
	for name, id := range then {
		require.Equal(t, id, now[name], name)
	}
}
