package cmd

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/engine/check"
)

// Checks that are skipped are one line for each reason in a category, which fits a terminal.
func TestSkippedChecks(t *testing.T) {
	skipped := func(id, category, cause string) check.Result {
		return check.Result{ID: id, Category: category, Title: id + " works", Status: check.Skipped, Cause: cause}
	}
	report := &check.Report{Results: []check.Result{
		skipped("KCP101", "Agents", "the setup has no agents"),
		{ID: "KCP102", Category: "Agents", Title: "it works", Status: check.OK},
		skipped("KCP103", "Agents", "shard/alpha is not ready, because its process has ended"),
		skipped("KCP104", "Agents", "the setup has no agents"),
		skipped("KCP105", "Workloads", "the setup has no agents"),
	}}
	s, out, _ := ui.Fake("", 40, 24)
	printReport(s.Out, report, false)
	text, _, _ := strings.Cut(out.String(), "\n\n")
	require.Equal(t, `Agents
. KCP101, KCP104 skipped: the setup has
  no agents
+ KCP102 it works
. KCP103 skipped: shard/alpha is not
  ready, because its process has ended
Workloads
. KCP105 skipped: the setup has no
  agents`, regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(text, ""))
}

func TestPrintReport(t *testing.T) {
	lines := func(format string, n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(format, i, i))
		}
		return strings.Join(out, "\n")
	}
	report := func(status check.Status, cause string) *check.Report {
		return &check.Report{Results: []check.Result{
			{ID: "KCP101", Category: "Components", Title: "every component is ready", Status: check.OK},
			{ID: "KCP102", Category: "Components", Title: "/readyz of every component passes", Status: status, Cause: cause},
		}}
	}
	const ok = "Components\n+ KCP101 every component is ready\n"
	for name, tc := range map[string]struct {
		report *check.Report
		all    bool
		want   string
	}{
		"few": {
			report(check.Fail, lines("shard/s%d: s%d-server: refused", 2)), false,
			ok + "x KCP102 /readyz of every component passes\n    shard/s0: s0-server: refused\n    shard/s1: s1-server: refused\n",
		},
		"many with one cause": {
			report(check.Fail, lines("shard/s%d: s%d-server: refused\n  last line", 100)), false,
			ok + "x KCP102 /readyz of every component passes\n    shard/s0, shard/s1, shard/s2 and 97 more: ...: refused\n      last line\n",
		},
		"many with several causes": {
			report(check.Warn, lines("shard/s%d: %d seconds late", 100)), false,
			ok + "! KCP102 /readyz of every component passes\n    " + strings.ReplaceAll(lines("shard/s%d: %d seconds late", 10), "\n", "\n    ") +
				"\n    and 90 more; -o wide prints them all\n",
		},
		"all": {
			report(check.Fail, lines("shard/s%d: s%d-server: refused", 100)), true,
			ok + "x KCP102 /readyz of every component passes\n    " + strings.ReplaceAll(lines("shard/s%d: s%d-server: refused", 100), "\n", "\n    ") + "\n",
		},
		"many skipped": {
			report(check.Skipped, "no DNS\n"+lines("shard/s%d: s%d-0 is not ready", 9)), false,
			ok + ". KCP102 skipped: no DNS; shard/s0, shard/s1, shard/s2 and 6 more: ... is not ready\n",
		},
		"skipped, with all": {
			report(check.Skipped, "no DNS"), true,
			ok + ". KCP102 /readyz of every component passes (skipped: no DNS)\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, out, _ := ui.Fake("", 0, 0)
			printReport(s.Out, tc.report, tc.all)
			text, _, _ := strings.Cut(out.String(), "\n\n")
			require.Equal(t, tc.want, text+"\n")
		})
	}
}
