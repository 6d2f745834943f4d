package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// The last event of a command that was interrupted has that status.
func TestInterruptedEvent(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	streams, out, _ := ui.Fake("", 0, 0)
	env := &Env{Streams: streams, Now: time.Now, Getenv: func(string) string { return "" }}
	code := Main(ctx, []string{"up", "-o", "json", "-f", t.TempDir() + "/missing.yaml"}, env)
	require.Equal(t, clierr.Interrupted, code)
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	require.Len(t, lines, 2)
	var last run.Event
	require.NoError(t, json.Unmarshal(lines[1], &last))
	require.Equal(t, run.Whole, last.Scope)
	require.Equal(t, run.Interrupted, last.Status)
	require.Equal(t, clierr.Interrupted, last.ExitCode)
}

func TestEnding(t *testing.T) {
	a, b := clierr.New(clierr.Failed, "fix a", "a is wrong"), clierr.New(clierr.Failed, "fix b", "b is wrong")
	conflict := plan.Conflict{Field: ".spec.replicas", Manager: "hpa"}
	conflict.Ref = plan.Ref{GroupVersionKind: schema.GroupVersionKind{Kind: "Deployment"}, Namespace: "kcp", Name: "demo"}
	for name, tc := range map[string]struct {
		err  error
		want run.Ending
	}{
		"done":   {nil, run.Ending{}},
		"silent": {silent(clierr.Failed), run.Ending{ExitCode: 1}},
		"one":    {a, run.Ending{ExitCode: 1, Error: "a is wrong", Hint: "fix a"}},
		"several refusals": {fmt.Errorf("refused: %w", errors.Join(a, b)), run.Ending{ExitCode: 1, Error: "refused",
			Errors: []run.Failure{{Message: "a is wrong", Hint: "fix a"}, {Message: "b is wrong", Hint: "fix b"}}}},
		"the hint of all": {clierr.New(clierr.NotReady, "wait", "%w", errors.Join(a, b)),
			run.Ending{ExitCode: 3, Error: "2 errors", Hint: "wait", Errors: []run.Failure{
				{Message: "a is wrong", Hint: "fix a"}, {Message: "b is wrong", Hint: "fix b"}}}},
		"mistakes": {&clierr.Error{Code: clierr.BadInput, Err: setup.Errors{{File: "f", Line: 2, Column: 3, Path: "p", Message: "m", Hint: "h"}}},
			run.Ending{ExitCode: 2, Error: "f:2:3: p: m, h", Errors: []run.Failure{
				{File: "f", Line: 2, Column: 3, Path: "p", Message: "m", Hint: "h"}}}},
		"conflicts": {conflicting{[]plan.Conflict{conflict}}, run.Ending{ExitCode: 1,
			Error: "1 field is owned by other field managers", Errors: []run.Failure{
				{Message: "Deployment/kcp/demo: .spec.replicas is owned by hpa"}}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, &tc.want, ending(tc.err)) })
	}
}

// conflicting is an error that wraps a *run.ConflictError.
type conflicting struct{ conflicts []plan.Conflict }

func (e conflicting) Error() string { return "1 field is owned by other field managers" }
func (e conflicting) Unwrap() error { return &deploy.ConflictError{Conflicts: e.conflicts} }
