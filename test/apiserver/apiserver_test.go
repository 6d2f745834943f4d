package apiserver

import (
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFreePorts(t *testing.T) {
	ports, err := freePorts(3)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, p := range ports {
		n, err := strconv.Atoi(p)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, firstPort)
		require.LessOrEqual(t, n, lastPort)
		seen[p] = true
	}
	require.Len(t, seen, 3)
}

// A server whose port another process has taken is started again at others: only its log reports it.
func TestATakenPortIsRecognized(t *testing.T) {
	for text, taken := range map[string]bool{
		"listen tcp 127.0.0.1:20000: bind: address already in use": true,
		"no space left on device":                                  false,
	} {
		p, err := launch("/bin/sh", filepath.Join(t.TempDir(), "log"), "-c", "echo '"+text+"'; exit 1")
		require.NoError(t, err)
		<-p.done
		err = p.ended()
		require.ErrorContains(t, err, "sh has ended")
		if taken {
			require.ErrorIs(t, err, syscall.EADDRINUSE)
		} else {
			require.ErrorContains(t, err, text)
		}
	}
}
