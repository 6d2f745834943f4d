package cmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDays(t *testing.T) {
	for text, want := range map[string]struct {
		d     time.Duration
		print string
	}{
		"30d":   {30 * day, "30d"},
		"720h":  {30 * day, "30d"},
		"1d12h": {36 * time.Hour, "36h0m0s"},
		"90m":   {90 * time.Minute, "1h30m0s"},
		"0d":    {0, "0s"},
	} {
		t.Run(text, func(t *testing.T) {
			var d days
			require.NoError(t, d.Set(text))
			require.Equal(t, want.d, time.Duration(d))
			require.Equal(t, want.print, d.String())
		})
	}
	for _, text := range []string{"", "d", "30", "-1d", "-5h", "1d-5h", "soon", "1.5d", "99999999d"} {
		t.Run("not "+text, func(t *testing.T) {
			var d days
			require.ErrorContains(t, d.Set(text), "invalid duration")
		})
	}
}
