package model_test

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/kcpctl/kcpctl/test/random"
)

// patience is how long a command may take. It takes less than a second, and more on a machine without a free processor.
// What takes longer waits for something that does not happen, such as a mutex in a bubble, and time stands still for it.
const patience = 10 * time.Minute

// watch ends the process with the command that takes too long, and what its goroutines wait for.
func watch(t *testing.T, taken *tally) {
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for before := int64(-1); ; before = taken.commands.Load() {
			select {
			case <-done:
				return
			case <-time.After(patience):
			}
			if c := taken.running.Load(); c != nil && taken.commands.Load() == before {
				fmt.Println("replay:", random.Replay(dirOfModel, t.Name(), taken.seed.Load()))
				panic(fmt.Sprintf("%s takes longer than %s:\n%s\n%s", c, patience, c.output.String(), waiting()))
			}
		}
	}()
}

var address = regexp.MustCompile(`0x[0-9a-f]+|\+0x[0-9a-f]+|^#\s*`)

// waiting returns where goroutines of the project wait: the innermost functions, one goroutine a line.
func waiting() string {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
	var out []string
	for _, goroutine := range strings.Split(all.String(), "\n\n") {
		var calls []string
		for _, line := range strings.Split(goroutine, "\n") {
			if fields := strings.Fields(line); strings.HasPrefix(line, "#") && len(fields) > 3 && len(calls) < 12 {
				calls = append(calls, address.ReplaceAllString(fields[2], "")+" "+fields[len(fields)-1])
			}
		}
		if strings.Contains(goroutine, "kcpctl/") {
			out = append(out, strings.Join(calls, " < "))
		}
	}
	return strings.Join(out, "\n")
}
