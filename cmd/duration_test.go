package cmd

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// No time is negative, in any flag of any command.
func TestDurationsAreNotNegative(t *testing.T) {
	n := 0
	for _, c := range runnable() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "duration" {
				n++
				require.Error(t, f.Value.Set("-5m"), "%s --%s", c.CommandPath(), f.Name)
				require.NoError(t, f.Value.Set("5m"))
			}
		})
	}
	require.Greater(t, n, 10)
	streams, _, errs := ui.Fake("", 0, 24)
	code := Main(t.Context(), []string{"check", "--wait", "-5m"},
		&Env{Streams: streams, Now: time.Now, Getenv: func(string) string { return "" }})
	require.Equal(t, clierr.BadInput, code)
	require.Contains(t, errs.String(), "must not be negative")
}
