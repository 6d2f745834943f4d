package check

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

var update = flag.Bool("update", false, "write docs/checks.md")

func newTopology(t *testing.T, spec string) *topology.Topology {
	t.Helper()
	return topologytest.Build(t, "spec:\n  version: v0.32.3\n"+spec)
}

// nowhere is a runtime that checks ask for its place only.
type nowhere struct{ Runtime }

func (nowhere) Where() string { return "nowhere" }
func (nowhere) Facts() Facts  { return Facts{} }

// cut is nowhere, with a cluster that cannot be reached.
type cut struct{ nowhere }

func (cut) Facts() Facts {
	return Facts{Unreachable: []plan.Unreachable{{Cluster: "us", Err: clierr.New(clierr.Failed, "check the network", "no answer")}}}
}

// A fake check ends as its outcome says.
func fake(id, category string, o outcome, needs ...string) Check {
	return Check{ID: id, Category: category, Title: id + " works", Fix: "fix " + id, Needs: needs,
		run: func(context.Context, *Subject) outcome { return o }}
}

func failed(causes ...string) outcome { return outcome{status: Fail, causes: causes} }

func TestRun(t *testing.T) {
	top := newTopology(t, "")
	r := Run(t.Context(), &Subject{Topology: top, Runtime: nowhere{}}, []Check{
		fake("A", "one", outcome{}), fake("B", "one", failed("x", "y")),
		fake("C", "two", outcome{status: Warn, causes: []string{"hm"}, fix: "do this"}),
		fake("D", "two", outcome{}, "B"), fake("E", "two", outcome{}, "A"), fake("F", "two", skipped("not %s", "here")),
	})
	require.Equal(t, []Result{
		{"A", "one", "A works", OK, "", "", false}, {"B", "one", "B works", Fail, "x\ny", "fix B", false},
		{"C", "two", "C works", Warn, "hm", "do this", false}, {"D", "two", "D works", Skipped, "B failed", "", false},
		{"E", "two", "E works", OK, "", "", false}, {"F", "two", "F works", Skipped, "not here", "", false},
	}, r.Results)
	require.False(t, r.Passed)
	require.Equal(t, "1 failed, 1 warning, 2 passed, 2 skipped", r.Summary())
	require.Equal(t, []string{"C: hm"}, r.Warnings())
	require.EqualError(t, r.Err(), "B: x\ny")
	require.Equal(t, "fix B", clierr.Hint(r.Err()))

	r.Ignore("b")
	require.True(t, r.Passed)
	require.NoError(t, r.Err())
	require.Equal(t, []string{"B: x", "B: y", "C: hm"}, r.Warnings())
}

// The checks of a category run concurrently: each waits until the other has begun.
func TestChecksOfACategoryRunAtOnce(t *testing.T) {
	top := newTopology(t, "")
	a, b := make(chan struct{}), make(chan struct{})
	meet := func(mine, other chan struct{}) func(context.Context, *Subject) outcome {
		return func(ctx context.Context, _ *Subject) outcome {
			close(mine)
			select {
			case <-other:
				return outcome{}
			case <-ctx.Done():
				return failed("alone")
			}
		}
	}
	r := Run(t.Context(), &Subject{Topology: top, Runtime: nowhere{}}, []Check{
		{ID: "A", Category: "one", run: meet(a, b)}, {ID: "B", Category: "one", run: meet(b, a)},
	})
	require.True(t, r.Passed)
}

func TestOutcome(t *testing.T) {
	boom := clierr.New(clierr.Failed, "do that", "boom")
	for name, tc := range map[string]struct {
		errs []error
		want outcome
	}{
		"nothing":          {[]error{nil}, outcome{}},
		"an error":         {[]error{boom}, outcome{Fail, []string{"boom"}, "do that", false}},
		"twice the same":   {[]error{boom, boom}, outcome{Fail, []string{"boom"}, "do that", false}},
		"joined":           {[]error{errors.Join(boom, errors.New("bang"))}, outcome{Fail, []string{"boom", "bang"}, "do that", false}},
		"unknown":          {[]error{fmt.Errorf("%w: who knows", ErrUnknown)}, outcome{Skipped, []string{"who knows"}, "", false}},
		"unknown and bad":  {[]error{fmt.Errorf("%w: who knows", ErrUnknown), boom}, outcome{Fail, []string{"boom"}, "do that", false}},
		"bad and unknown":  {[]error{boom, fmt.Errorf("%w: who knows", ErrUnknown)}, outcome{Fail, []string{"boom"}, "do that", false}},
		"wrapped, joined ": {[]error{fmt.Errorf("all: %w", errors.Join(boom, boom))}, outcome{Fail, []string{"all: boom\nboom"}, "", false}},
	} {
		t.Run(name, func(t *testing.T) {
			var o outcome
			for _, err := range tc.errs {
				o.add(err)
			}
			require.Equal(t, tc.want.status, o.status)
			require.Equal(t, tc.want.causes, o.causes)
			if tc.want.fix != "" {
				require.Equal(t, tc.want.fix, o.fix)
			}
		})
	}
}

// IDs are forever: a check that goes leaves a gap.
func TestTable(t *testing.T) {
	ids := []string{}
	categories := map[string]bool{}
	last := ""
	for _, c := range All() {
		require.Regexp(t, `^KCP\d{3}$`, c.ID)
		require.NotContains(t, ids, c.ID)
		require.NotEmpty(t, c.Explanation, c.ID)
		require.NotEmpty(t, c.Fix, c.ID)
		require.NotNil(t, c.run, c.ID)
		require.NotContains(t, c.Title, "not ", "%s: a title says what is true if the check passes", c.ID)
		for _, n := range c.Needs {
			need, ok := Find(n)
			require.True(t, ok)
			require.NotEqual(t, c.Category, need.Category, "%s needs %s, which runs at the same time", c.ID, n)
		}
		if c.Category != last {
			require.False(t, categories[c.Category], "%s: the category %s is in two places", c.ID, c.Category)
			categories[c.Category], last = true, c.Category
		}
		ids = append(ids, c.ID)
	}
	require.IsIncreasing(t, ids)
	inPlan := preflight(func(c Check) bool { return c.InPlan })
	require.Len(t, slices.Concat(Quick(), Thorough(), WithPods(), inPlan), len(Preflight))
}

// kubectl needs the namespace. etcdctl gives up after 5 seconds, while the member of a large etcd still defragments and
// serves nothing: two such members have no majority.
func TestCommandsForEtcdctl(t *testing.T) {
	defragments := 0
	for _, c := range All() {
		for _, run := range strings.Split(c.Fix, "kubectl exec ")[1:] {
			require.True(t, strings.HasPrefix(run, "-n NAMESPACE POD -- "), "%s: kubectl exec %s", c.ID, run)
		}
		for _, run := range strings.Split(c.Fix, "etcdctl defrag")[1:] {
			require.True(t, strings.HasPrefix(run, " --command-timeout=5m"), "%s: etcdctl defrag%s", c.ID, run)
			require.Contains(t, c.Fix, "one member after the other, the leader last", c.ID)
			defragments++
		}
	}
	require.NotZero(t, defragments)
	page, err := os.ReadFile("../../../docs/production.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "etcdctl defrag --command-timeout=5m\n")
}

// docs/checks.md is the table for users.
func TestDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Checks\n\n`kcpctl check` checks a running setup, and `kcpctl check --pre` the prerequisites of `kcpctl up`, which `up` also does\n" +
		"itself. `kcpctl explain ID` shows these texts offline. An ID never changes its meaning. If a check fails, the exit code\n" +
		"is 1; warnings do not change it. `kcpctl up --ignore-checks ID,...` turns failures into warnings.\n\n" +
		"A cause that is the same for many components is one line, and a check has at most about ten lines. `-o wide` prints all\n" +
		"causes, `-o json` all results for programs.\n")
	category := ""
	for _, c := range All() {
		if c.Category != category {
			category = c.Category
			fmt.Fprintf(&b, "\n## %s\n", category)
		}
		fmt.Fprintf(&b, "\n### %s: %s\n\n%s\n\nFix: %s.\n", c.ID, c.Title, c.Explanation, c.Fix)
	}
	const file = "../../../docs/checks.md"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644)) // #nosec G306 -- a document
	}
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(have), "run go test ./internal/engine/check -update")
}

// With a cluster that cannot be reached, the others are still checked.
func TestAnUnreachableClusterFailsOnce(t *testing.T) {
	s := &Subject{Topology: &topology.Topology{}, Runtime: cut{}}
	checks := []Check{Preflight[0], fake("B", "two", outcome{}, "KCP001")}
	r := Run(t.Context(), s, checks)
	require.Equal(t, Fail, r.Results[0].Status)
	require.Equal(t, "cluster us: no answer", r.Results[0].Cause)
	require.Equal(t, "check the network", r.Results[0].Fix)
	require.Equal(t, OK, r.Results[1].Status)

	s.AllowUnreachable = true
	require.True(t, Run(t.Context(), s, checks).Passed)
}
