package setup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Hosts that clients of kcp dial are accepted, and no others.
func TestHosts(t *testing.T) {
	for _, valid := range []string{"kcp", "kcp.example.com", "kcp-1.example.com", "10.0.0.1", "::1", "fd00::1", "xn--gre-gla1m.example.com", "1.example.com", "a.b2"} {
		require.Empty(t, hostProblem(valid), valid)
	}
	for host, want := range map[string]string{
		"": "empty", "010.0.0.1": "IPv4", "1.2.3": "IPv4", "12": "IPv4", "10.0.0.256": "IPv4", "a.0x1f": "IPv4", "[::1]": "brackets", "a b": `" "`,
		"a:1": "port: :1", "a.": "dot", ".a": "part", "a-.b": "a-", "KCP": `"K"`, "a_b": `"_"`, "*.a": "wildcard", "ä": "xn--", "a@b": `"@"`,
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": "has 65",
	} {
		require.Contains(t, hostProblem(host), want, host)
	}
}
