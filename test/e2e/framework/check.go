package framework

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// report is the JSON output of kcpctl check.
type report struct {
	Passed  bool
	Results []struct{ ID, Status, Cause, Fix string }
}

func (s *Setup) Check(t *testing.T, args ...string) report {
	t.Helper()
	out, err := s.tryCheck(t, args...)
	require.NoError(t, err)
	return out
}

func (s *Setup) tryCheck(t *testing.T, args ...string) (out report, err error) {
	t.Helper()
	r := s.Kcpctl(t, "check", append(args, "--output", "json")...)
	if err := json.Unmarshal([]byte(r.Stdout), &out); err != nil {
		return out, fmt.Errorf("%w: %s", err, r.Stderr)
	}
	if out.Passed != (r.Code == 0) {
		return out, fmt.Errorf("exit code %d: %v: %s", r.Code, out, r.Stderr)
	}
	return out, nil
}

// Finds waits until a check has a status, and its cause the facts. A check that sees a cluster needs an answer of it in
// time, and some look at what its controllers write.
func (s *Setup) Finds(t *testing.T, flags []string, id, status string, facts ...string) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		r, err := s.tryCheck(t, flags...)
		if err == nil {
			err = r.has(id, status, facts...)
		}
		return err
	})
}

// has returns an error unless a check has a status, and its cause the facts.
func (r report) has(id, status string, facts ...string) error {
	got, cause := r.Of(id)
	if got != status {
		return fmt.Errorf("%s is %q, not %q: %s", id, got, status, cause)
	}
	for _, fact := range facts {
		if !strings.Contains(cause, fact) {
			return fmt.Errorf("%s does not say %q: %s", id, fact, cause)
		}
	}
	return nil
}

// Passes waits until no check fails, and those with the IDs are ok.
func (s *Setup) Passes(t *testing.T, flags []string, ids ...string) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		r, err := s.tryCheck(t, flags...)
		if err == nil && !r.Passed {
			err = fmt.Errorf("%v", r)
		}
		for _, id := range ids {
			if err == nil {
				err = r.has(id, "ok")
			}
		}
		return err
	})
}

// Of returns the result of a check.
func (r report) Of(id string) (status, cause string) {
	for _, res := range r.Results {
		if res.ID == id {
			return res.Status, res.Cause
		}
	}
	return "", ""
}

func (r report) Passes(t *testing.T) {
	t.Helper()
	for _, res := range r.Results {
		require.NotEqual(t, "fail", res.Status, "%s: %s", res.ID, res.Cause)
	}
}
