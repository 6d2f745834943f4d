package release

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The list of a release fits what kcpctl knows about its features.
func TestFlagsOfReleases(t *testing.T) {
	for _, v := range []string{"v0.32.2", "v0.32.3"} {
		for _, program := range []string{"cache-server", "kcp", "kcp-front-proxy", "virtual-workspaces"} {
			require.Greater(t, len(Flags(program, v)), 40, "%s %s", program, v)
			require.Contains(t, Flags(program, v), "bind-address")
			require.Contains(t, Flags(program, v), "v")
		}
		require.Contains(t, Flags("kcp", v), "external-hostname") // hidden
		require.Equal(t, Of(v).MountProxy, slices.Contains(Flags("kcp", v), "mount-proxy-client-cert-file"), v)
	}
	require.NotNil(t, Flags("kcp", Newest))
	require.NotNil(t, Flags("kcp", Default))
	require.Nil(t, Flags("kcp", "v0.31.0"))
	require.Nil(t, Flags("kcp", "../flags/v0.32.3"))
	require.Nil(t, Flags("etcd", Newest))
}

func TestUnknownFlag(t *testing.T) {
	for name, tc := range map[string]struct {
		program, release, flag string
		unknown, certain       bool
	}{
		"known":              {"kcp", "v0.32.3", "bind-address", false, true},
		"underscores":        {"kcp", "v0.32.3", "bind_address", false, true},
		"mistyped":           {"kcp", "v0.32.3", "bind-adress", true, true},
		"of another program": {"cache-server", "v0.32.3", "shard-name", true, true},
		"another release":    {"kcp", "v0.33.0", "bind-adress", true, false},
		"another program":    {"etcd", "v0.32.3", "bind-adress", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			unknown, certain, _ := UnknownFlag(tc.program, tc.release, tc.flag)
			require.Equal(t, tc.unknown, unknown)
			require.Equal(t, tc.certain, certain)
		})
	}
}
