package random

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A check gets the same random data as the first one if it gets its seed.
func TestSeedsReplay(t *testing.T) {
	drawn := map[uint64]int{}
	run := func(t *testing.T, wanted int) {
		steps := 0
		c := &Checks{Wanted: wanted, Steps: func() int { return steps }, Check: func(rt *rapid.T, seed uint64) {
			steps++
			n := rapid.Int().Draw(rt, "n")
			if was, ok := drawn[seed]; ok {
				require.Equal(t, was, n)
			}
			drawn[seed] = n
		}}
		c.Run(t)
		require.Equal(t, wanted, steps)
	}
	t.Setenv(seedVariable, "7")
	run(t, 120)
	require.Len(t, drawn, 120)
	for seed := range drawn {
		require.NoError(t, setSeed(seed))
		run(t, 1)
	}
}

func TestReplay(t *testing.T) {
	if flag.Lookup("model.only") == nil {
		flag.String("model.only", "", "")
	}
	require.NoError(t, flag.Set("model.only", "a,b"))
	require.Equal(t, `go test ./test/model -run TestModel -rapid.seed 7 -model.steps 1 -model.only "a,b"`, Replay("test/model", 7))
}
