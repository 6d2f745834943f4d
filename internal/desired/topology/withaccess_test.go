package topology_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// The role for access is there once, also if the setup file lists it.
func TestWithAccess(t *testing.T) {
	require.Empty(t, topology.WithAccess(nil))
	require.Equal(t, []string{topology.AccessRole, "view"}, topology.WithAccess([]string{"view"}))
	require.Equal(t, []string{"view", topology.AccessRole}, topology.WithAccess([]string{"view", topology.AccessRole}))
}
