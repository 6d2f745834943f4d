package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNodesShareNoAddress(t *testing.T) {
	all := netip.MustParsePrefix(testbedCIDR)
	var seen []netip.Prefix
	for _, n := range nodes() {
		service := netip.MustParsePrefix(n.serviceCIDR)
		require.Equal(t, service.Addr().Next().String(), n.apiService, "Kubernetes takes the first")
		require.True(t, service.Contains(netip.MustParseAddr(n.dnsService)))
		for _, cidr := range []string{n.podCIDR, n.serviceCIDR, n.balancers, n.address + "/32"} {
			prefix := netip.MustParsePrefix(cidr)
			require.Equal(t, prefix.Masked(), prefix)
			require.True(t, all.Overlaps(prefix))
			for _, s := range seen {
				require.False(t, s.Overlaps(prefix), "%s and %s", s, prefix)
			}
			seen = append(seen, prefix)
		}
	}
}

func TestUpStepsNeedOnlyEarlierOnes(t *testing.T) {
	bed := &testbed{cache: t.TempDir()}
	for _, n := range nodes() {
		require.NoError(t, checkSteps(bed.upSteps(n)))
		require.False(t, slices.ContainsFunc(bed.upSteps(n), func(s step) bool { return s.name == firewall }), "only a long test needs it")
	}
}

func TestRunSteps(t *testing.T) {
	ran := make(chan string, 3)
	do := func(name string, err error) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { ran <- name; return "done", err }
	}
	log := newProgress(t.Output())
	require.NoError(t, runSteps(t.Context(), log, []step{
		{"a", nil, do("a", nil)}, {"b", []string{"a"}, do("b", nil)}, {"c", []string{"b"}, do("c", nil)},
	}))
	require.Equal(t, []string{"a", "b", "c"}, []string{<-ran, <-ran, <-ran})

	broken := errors.New("broken")
	err := runSteps(t.Context(), log, []step{{"a", nil, do("a", broken)}, {"b", []string{"a"}, do("b", nil)}})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "a: broken")
	require.Equal(t, "a", <-ran)
	require.Empty(t, ran, "a step ran though what it needs failed")

	require.ErrorContains(t, runSteps(t.Context(), log, []step{{"a", []string{"b"}, nil}, {"b", nil, nil}}), "needs b")
}

func TestMountsBelow(t *testing.T) {
	const mountinfo = `22 1 8:1 / / rw - ext4 /dev/vda rw
30 22 0:5 / /run/bed/a/one rw - tmpfs tmpfs rw
31 30 0:5 / /run/bed/a/one/two\040three rw - tmpfs tmpfs rw
32 22 0:5 / /run/bed/ab rw - tmpfs tmpfs rw
`
	require.Equal(t, []string{"/run/bed/a/one/two three", "/run/bed/a/one"}, mountsBelow(mountinfo, "/run/bed/a", "/var/bed/a"))
}

func TestParseFlagsBetweenArguments(t *testing.T) {
	for _, v := range verbs() {
		if v.name != "user-kubeconfig" {
			continue
		}
		o, err := v.parse([]string{"--group", "devs", "alice", "--group=ops", "--node", "b"}, t.Output())
		require.NoError(t, err)
		require.Equal(t, &options{node: "b", groups: []string{"devs", "ops"}, args: []string{"alice"}}, o)
		_, err = v.parse([]string{"--version", "v1"}, t.Output())
		require.Error(t, err)
	}
}
