// Package random runs random checks whose seeds are known, so that the one that failed can run again alone.
package random

import (
	"flag"
	"fmt"
	oldrand "math/rand"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	// seedFlag is the flag of rapid for the seed, and seedVariable is its environment variable.
	seedFlag     = "rapid.seed"
	seedVariable = "RAPID_SEED"
	// stepsFlag is the flag of a model for the number of steps.
	stepsFlag = "model.steps"
)

// Checks are the checks of a model, each of which takes some steps.
type Checks struct {
	// Dir is the directory of the model in the repository.
	Dir string
	// Wanted is how many steps the checks take together, and Steps returns how many they have taken.
	Wanted int
	Steps  func() int
	// Check is one check with its seed.
	Check func(t *rapid.T, seed uint64)

	test   string
	failed bool
}

func (c *Checks) more() bool { return c.Steps() < c.Wanted && !c.failed }

// Run runs checks until they have taken the wanted steps. The first check that fails prints how it runs again.
func (c *Checks) Run(t *testing.T) {
	given := first(t)
	c.test = t.Name()
	defer func() { require.NoError(t, setSeed(given)) }() // for -count=2
	for seed := given; c.more(); seed++ {
		require.NoError(t, setSeed(seed))
		// Files of checks that failed earlier come first, and they have no seed.
		number := -failFiles(t)
		rapid.Check(t, func(rt *rapid.T) {
			if !c.failed {
				if !c.more() {
					return // skip the rest of the checks
				}
				seed += uint64(max(number, 0)) // as rapid counts
				number++
			}
			defer c.repanic(seed)
			c.Check(rt, seed)
		})
	}
}

// Seed makes keys and the jitter of Kubernetes' client follow a seed. The package of the test needs the directive
// go:debug randseednop=0: it is the only way to seed what other modules draw.
func Seed(t *testing.T, seed uint64) {
	cryptotest.SetGlobalRandom(t, seed)
	oldrand.Seed(int64(seed))
}

// repanic prints how a check that fails runs again.
func (c *Checks) repanic(seed uint64) {
	reason := recover()
	if reason == nil {
		return
	}
	// A check that has run out of random data has not failed.
	if !c.failed && fmt.Sprintf("%T", reason) != "rapid.invalidData" {
		c.failed = true
		fmt.Println("replay:", Replay(c.Dir, c.test, seed))
	}
	panic(reason)
}

// first returns the seed of the first check: the one of the flag or of the environment, or 1, so that a test that fails
// was broken by a change and not found by chance. Zero is a random one.
func first(t *testing.T) uint64 {
	text, given := os.LookupEnv(seedVariable)
	flag.Visit(func(f *flag.Flag) {
		if f.Name == seedFlag {
			text, given = f.Value.String(), true
		}
	})
	if !given {
		return 1
	}
	seed, err := strconv.ParseUint(text, 0, 64)
	require.NoError(t, err)
	if seed == 0 {
		seed = 1 + rand.Uint64N(1<<32)
	}
	return seed
}

func setSeed(seed uint64) error { return flag.Set(seedFlag, strconv.FormatUint(seed, 10)) }

func failFiles(t *testing.T) int {
	files, err := filepath.Glob(filepath.Join("testdata", "rapid", t.Name(), "*.fail"))
	require.NoError(t, err)
	return len(files)
}

// Replay returns the command that runs one check of a model again: a check that has begun takes all of its steps.
func Replay(dir, test string, seed uint64) string {
	out := fmt.Sprintf("go test ./%s -run %s -%s %d -%s 1", dir, test, seedFlag, seed, stepsFlag)
	flag.Visit(func(f *flag.Flag) {
		model := strings.HasPrefix(f.Name, "model.") && f.Name != stepsFlag && f.Name != "model.log"
		if model || f.Name == "rapid.steps" {
			out += fmt.Sprintf(" -%s %q", f.Name, f.Value)
		}
	})
	return out
}
