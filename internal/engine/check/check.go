// Package check holds what can be wrong with a setup as a table of checks: before anything is applied, and while it
// runs. Checks and results are data; callers print them.
package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// The categories, in the order in which they are checked.
const (
	catClusters     = "Kubernetes clusters"
	catNamespace    = "Cluster prerequisites"
	catNetwork      = "Network of this machine"
	catReach        = "Network of the clusters"
	catMachine      = "This machine"
	catAgents       = "Agents"
	catPhysical     = "Physical clusters"
	catComponents   = "Components"
	catConnections  = "Connections"
	catKcp          = "kcp"
	catCertificates = "Certificates"
	catAgentsHealth = "Agents that run"
	catWorkloads    = "Workloads"
)

// All returns every check: preflight checks first, then health checks.
func All() []Check { return slices.Concat(Preflight, Health) }

// Quick returns the preflight checks that also run when there is nothing to apply.
func Quick() []Check {
	return preflight(func(c Check) bool { return !c.Thorough && !c.CreatesPods && !c.InPlan })
}

// Thorough returns the preflight checks that run only for objects that are about to be created or changed.
func Thorough() []Check {
	return preflight(func(c Check) bool { return c.Thorough && !c.CreatesPods })
}

// WithPods returns the preflight checks that create pods, for which the namespaces must exist.
func WithPods() []Check { return preflight(func(c Check) bool { return c.CreatesPods }) }

func preflight(belongs func(Check) bool) []Check {
	return slices.DeleteFunc(slices.Clone(Preflight), func(c Check) bool { return !belongs(c) })
}

// Status is how a check ended.
type Status string

// The results of checks.
const (
	OK      Status = "ok"
	Warn    Status = "warn"
	Fail    Status = "fail"
	Skipped Status = "skipped" // it does not apply, or cannot be determined
)

// Check is one thing that can be wrong.
type Check struct {
	// ID never changes its meaning, and is never given to another check.
	ID string
	// Category is the heading that the check is shown under. Checks of a category run concurrently, categories in turn.
	Category string
	// Title is the statement that is true if the check passes.
	Title string
	// Explanation says what is checked and why it matters, Fix what to do if the check fails.
	Explanation, Fix string
	// Needs are checks of earlier categories. If one of them fails, this one is skipped.
	Needs []string
	// Thorough checks are left out if there is nothing to apply.
	Thorough bool
	// CreatesPods checks create short-lived pods. A dry run leaves them out.
	CreatesPods bool
	// InPlan checks are left out of up, which finds the same when it makes the plan.
	InPlan bool

	run func(context.Context, *Subject) outcome
	// limit is how long the check may take. Default: timeout.
	limit time.Duration
}

// Result is how a check ended.
type Result struct {
	ID       string `json:"id"`
	Category string `json:"category"`
	Title    string `json:"title"`
	Status   Status `json:"status"`
	// Cause is the reason, one line for each problem, and Fix is the next step.
	Cause string `json:"cause,omitempty"`
	Fix   string `json:"fix,omitempty"`

	partial bool
}

// Report is the results of some checks, in the order of the table.
type Report struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name is the setup's name, Where the place where it runs.
	Name  string `json:"name"`
	Where string `json:"where"`
	// Passed is true if no check has failed.
	Passed  bool     `json:"passed"`
	Results []Result `json:"results"`
	// Reachability is who must reach whom, if a check has asked for it.
	Reachability []Reachability `json:"reachability,omitempty"`
}

// ReportKind is the kind of Report, as programs see it.
const ReportKind = "CheckReport"

// timeout is how long one check may take, unless it has its own limit.
const timeout = 20 * time.Second

// Run runs checks on a subject.
func Run(ctx context.Context, s *Subject, checks []Check) *Report {
	s.facts = s.Runtime.Facts()
	r := &Report{APIVersion: v1alpha1.APIVersion, Kind: ReportKind, Name: s.Topology.Name,
		Where: s.Runtime.Where(), Passed: true}
	failed := map[string]bool{}
	for len(checks) > 0 {
		n := 1
		for n < len(checks) && checks[n].Category == checks[0].Category {
			n++
		}
		results := parallel.Map(n, checks[:n], func(c Check) Result { return c.result(ctx, s, failed) })
		for _, res := range results {
			failed[res.ID] = res.Status == Fail && !res.partial
			r.Passed = r.Passed && res.Status != Fail
		}
		r.Results, checks = append(r.Results, results...), checks[n:]
	}
	r.Reachability = s.reached
	return r
}

// result runs a check unless one that it needs has failed.
func (c Check) result(ctx context.Context, s *Subject, failed map[string]bool) Result {
	res := Result{ID: c.ID, Category: c.Category, Title: c.Title, Status: OK}
	for _, n := range c.Needs {
		if failed[n] {
			res.Status = Skipped
			res.Cause = n + " failed"
			return res
		}
	}
	limit := cmp.Or(c.limit, timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	o := c.run(ctx, s)
	if o.status != "" {
		res.Status, res.Cause, res.partial = o.status, strings.Join(o.causes, "\n"), o.partial
	}
	if res.Status == Fail || res.Status == Warn {
		res.Fix = cmp.Or(o.fix, c.Fix)
	}
	return res
}

// Count returns how many results have a status.
func (r *Report) Count(s Status) int {
	n := 0
	for _, res := range r.Results {
		if res.Status == s {
			n++
		}
	}
	return n
}

// Summary is one line: 2 failed, 1 warning, 9 passed, 1 skipped.
func (r *Report) Summary() string {
	var parts []string
	for _, p := range []struct {
		status    Status
		one, many string
	}{{Fail, "failed", "failed"}, {Warn, "warning", "warnings"}, {OK, "passed", "passed"},
		{Skipped, "skipped", "skipped"}} {
		n, word := r.Count(p.status), p.many
		if n == 1 {
			word = p.one
		}
		if n > 0 || p.status == OK {
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	return strings.Join(parts, ", ")
}

// Ignore turns the failures of some checks into warnings.
func (r *Report) Ignore(ids ...string) {
	r.Passed = true
	for i := range r.Results {
		res := &r.Results[i]
		ignored := slices.ContainsFunc(ids, func(id string) bool { return strings.EqualFold(id, res.ID) })
		if res.Status == Fail && ignored {
			res.Status = Warn
		}
		r.Passed = r.Passed && res.Status != Fail
	}
}

// Warnings returns the causes of all warnings, each with the ID of its check.
func (r *Report) Warnings() []string {
	var out []string
	for _, res := range r.Results {
		if res.Status == Warn {
			for line := range strings.Lines(res.Cause) {
				out = append(out, res.ID+": "+strings.TrimSpace(line))
			}
		}
	}
	return out
}

// Err returns an error with the causes and fixes of all checks that have failed; nil if none has.
func (r *Report) Err() error {
	var errs []error
	for _, res := range r.Results {
		if res.Status == Fail {
			errs = append(errs, clierr.New(clierr.Failed, res.Fix, "%s: %s", res.ID, res.Cause))
		}
	}
	return parallel.Join(errs)
}

// Find returns the check with an ID; case does not matter.
func Find(id string) (Check, bool) {
	for _, c := range All() {
		if strings.EqualFold(c.ID, id) {
			return c, true
		}
	}
	return Check{}, false
}
