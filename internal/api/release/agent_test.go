package release_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/release"
)

func TestAgent(t *testing.T) {
	for _, kcp := range []string{release.Oldest, release.Newest, "v1.0.0", "v0.20.0", "main"} {
		require.Equal(t, "v0.7.0", release.Agent(kcp), kcp)
		require.Empty(t, release.CheckAgent(release.Agent(kcp)))
	}
}

func TestCheckAgent(t *testing.T) {
	for _, v := range []string{"v0.8.0-rc.1", release.OldestAgent + "-fips"} {
		require.Empty(t, release.CheckAgent(v), v)
	}
	for _, v := range []string{"v0.6.2", release.OldestAgent + "-rc.1"} {
		require.Equal(t, "the oldest supported release is v0.7.0", release.CheckAgent(v), v)
	}
	for _, v := range []string{"0.7.0", "main", ""} {
		require.Equal(t, "must be a release of the api-syncagent such as v0.7.0", release.CheckAgent(v), v)
	}
}

func TestNewerAgentNote(t *testing.T) {
	require.Empty(t, release.NewerAgentNote(release.NewestAgent))
	require.Empty(t, release.NewerAgentNote("main"))
	require.Contains(t, release.NewerAgentNote("v0.8.0"), "v0.8.0 is newer than v0.7.0")
}
