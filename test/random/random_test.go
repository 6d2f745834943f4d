package random

import (
	"flag"
	"os"
	"os/exec"
	"regexp"
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

// A model that fails prints a command once. With its seed, the first check fails in the same way.
func TestAFailedCheckRunsAgain(t *testing.T) {
	const inside = "KCPCTL_TEST_FAILS"
	if os.Getenv(inside) != "" {
		steps := 0
		c := &Checks{Dir: "test/model", Wanted: 1000, Steps: func() int { return steps }, Check: func(rt *rapid.T, _ uint64) {
			steps++
			if n := rapid.IntRange(0, 1000).Draw(rt, "n"); n > 900 {
				rt.Fatalf("%d of step %d", n, steps)
			}
		}}
		c.Run(t)
		return
	}
	fail := func(args ...string) (seed string, out string) {
		args = append([]string{"-test.run", t.Name(), "-rapid.nofailfile", "-rapid.shrinktime", "1ms"}, args...)
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), inside+"=1", seedVariable+"=1")
		raw, err := cmd.CombinedOutput()
		require.Error(t, err)
		found := regexp.MustCompile(`(?m)^replay: go test ./test/model -run TestAFailedCheckRunsAgain -rapid.seed (\d+) -model.steps 1$`).
			FindAllStringSubmatch(string(raw), -1)
		require.Len(t, found, 1, "%s", raw)
		return found[0][1], string(raw)
	}
	seed, out := fail()
	require.NotContains(t, out, "failed after 0 tests")
	again, out := fail("-rapid.seed", seed)
	require.Equal(t, seed, again)
	require.Contains(t, out, "failed after 0 tests")
}

func TestReplay(t *testing.T) {
	if flag.Lookup("model.only") == nil {
		flag.String("model.only", "", "")
	}
	require.NoError(t, flag.Set("model.only", "a,b"))
	require.Equal(t, `go test ./test/model -run TestModel -rapid.seed 7 -model.steps 1 -model.only "a,b"`, Replay("test/model", "TestModel", 7))
}
