package day2

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// interrupt runs kcpctl up and sends it a signal after n events that match.
func interrupt(t *testing.T, s *framework.Setup, sig os.Signal, n int, event *regexp.Regexp) framework.Result {
	t.Helper()
	r := s.Command("up", "--output", "json").During(t, n, event, func(up *exec.Cmd) {
		require.NoError(t, up.Process.Signal(sig))
	})
	require.NotZero(t, r.Code)
	return r
}
