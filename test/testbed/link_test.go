package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCutPorts(t *testing.T) {
	b, err := oneNode("b")
	require.NoError(t, err)
	ports, err := cutPorts(b, toNodes)
	require.NoError(t, err)
	require.Equal(t, []string{"kcpctl-a", "kcpctl-b", "kcpctl-c"}, ports, "the machine reaches all nodes")
	ports, err = cutPorts(b, toMachine)
	require.NoError(t, err)
	require.Equal(t, []string{machinePort, "kcpctl-b"}, ports, "the nodes reach each other")
	_, err = cutPorts(b, "moon")
	require.ErrorContains(t, err, `"moon"`)
}
