package process

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/testutil"
)

func TestCrashes(t *testing.T) {
	for name, tc := range map[string]struct {
		ages []int // seconds that the process lived, one after the other
		want bool  // whether it is given up
	}{
		"once fast":                {ages: []int{1}},
		"twice fast":               {ages: []int{1, 1}, want: true},
		"fast and slow in turns":   {ages: []int{1, 30, 1}},
		"too often":                {ages: []int{30, 30, 30, 30}, want: true},
		"forgiven after some time": {ages: []int{30, 30, 30, 700, 30}},
	} {
		t.Run(name, func(t *testing.T) {
			var c Crashes
			now := testutil.Start()
			for _, age := range tc.ages {
				c.Record(now, time.Duration(age)*time.Second)
				c.Record(now.Add(time.Hour), time.Duration(age)*time.Second) // by another run
				require.Equal(t, !c.GaveUp(), c.Waiting(now))
				c.Restarted()
			}
			require.Equal(t, tc.want, c.GaveUp())
		})
	}
}

func TestAClockThatIsSetBackDelaysNoRestart(t *testing.T) {
	now := testutil.Start()
	var c Crashes
	require.False(t, c.Waiting(now))
	c.Record(now, time.Minute)
	require.True(t, c.Waiting(now))
	require.False(t, c.Waiting(now.Add(time.Second)))
	require.False(t, c.Waiting(now.Add(-time.Hour)))
}
