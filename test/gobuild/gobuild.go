// Package gobuild runs go build and reports how far it is, at regular intervals and on any output: a cold build of a
// large module takes minutes in which go build itself prints nothing.
package gobuild

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// defaultInterval is the time between two reports of a build.
	defaultInterval = 15 * time.Second
	// maxTail is how many lines of go build an error has.
	maxTail = 20
)

// Build is one run of go build.
type Build struct {
	// Dir is the working directory. Empty means that of this process.
	Dir string
	// Env is added to the environment of this process.
	Env []string
	// Args are the flags and packages of go build.
	Args []string
	// Report is called with one line at every interval, and never after Run has returned.
	Report func(line string)
	// Interval is the time between two reports. Zero means 15 seconds.
	Interval time.Duration
}

// Run builds. The error has what the compiler printed. A build that ends within the first interval reports nothing.
func (b Build) Run(ctx context.Context) error {
	state := &state{began: time.Now(), out: b.out()}
	defer b.reportUntilDone(state)()
	// go build -n downloads modules and prints the commands of what is not in the build cache.
	if err := b.goBuild(ctx, "-n", state.countPlanned); err != nil {
		return err
	}
	state.startBuild()
	return b.goBuild(ctx, "-v", state.countBuilt)
}

// reportUntilDone reports in the background until the returned function is called.
func (b Build) reportUntilDone(s *state) func() {
	interval := b.Interval
	if interval == 0 {
		interval = defaultInterval
	}
	ticker, done := time.NewTicker(interval), make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				b.Report(s.line(time.Since(s.began)))
			}
		}
	})
	return func() {
		ticker.Stop()
		close(done)
		reporter.Wait()
	}
}

// goBuild runs go build with one more flag. progress receives each line of its output, and reports whether it has used
// it.
func (b Build) goBuild(ctx context.Context, flag string, progress func(line string) bool) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", flag}, b.Args...)...)
	cmd.Dir, cmd.Env = b.Dir, append(os.Environ(), b.Env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	var tail []string // what is not progress; of a failed build, the reason
	var scanned sync.WaitGroup
	scanned.Go(func() {
		lines := bufio.NewReader(reader)
		for {
			text, err := lines.ReadString('\n')
			if text = strings.TrimRight(text, "\n"); text != "" && !progress(text) {
				tail = append(tail[max(0, len(tail)-maxTail+1):], text)
			}
			if err != nil {
				return
			}
		}
	})
	err := cmd.Run()
	writer.Close()
	scanned.Wait()
	if err != nil {
		return fmt.Errorf("go build %s: %w:\n%s", strings.Join(b.Args, " "), err, strings.Join(tail, "\n"))
	}
	return nil
}

// out returns the value of the flag -o if it is a directory, otherwise nothing.
func (b Build) out() string {
	i := slices.Index(b.Args, "-o")
	if i < 0 || i+1 == len(b.Args) || !strings.HasSuffix(b.Args[i+1], string(filepath.Separator)) {
		return ""
	}
	return filepath.Join(b.Dir, b.Args[i+1])
}

// state is how far a build is.
type state struct {
	began time.Time
	out   string // the directory that receives the binaries; empty if it is not known

	mu                                 sync.Mutex
	building                           bool
	modules, packages, built, binaries int
	last                               string // the module or package of the last line
}

// packageLine matches a line of go build -v: an import path.
var packageLine = regexp.MustCompile(`^[^\s:#]+$`)

// countPlanned counts a line of go build -n, and reports whether the line is one that counts.
func (s *state) countPlanned(line string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		s.modules++
		s.last = strings.TrimPrefix(line, "go: downloading ")
	case strings.Contains(line, "/compile -o "):
		s.packages++
	case strings.Contains(line, "/link -o "):
		s.binaries++
	default:
		return false
	}
	return true
}

// countBuilt counts a line of go build -v, and reports whether the line is one that counts.
func (s *state) countBuilt(line string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if packageLine.MatchString(line) {
		s.built++
		s.last = line
		return true
	}
	return false
}

func (s *state) startBuild() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.building, s.last = true, ""
}

// line describes the state after some time, such as "20s: 212 of 2140 packages compiled, 0 of 5 binaries linked".
func (s *state) line(took time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	took = took.Round(time.Second)
	if !s.building {
		return fmt.Sprintf("%s: %d modules downloaded%s", took, s.modules, at(s.last))
	}
	linked := ""
	if s.out != "" {
		files, _ := os.ReadDir(s.out) // it does not exist before the first binary
		linked = fmt.Sprintf(", %d of %d binaries linked", len(files), s.binaries)
	}
	return fmt.Sprintf("%s: %d of %d packages compiled%s%s", took, s.built, max(s.packages, s.built), linked, at(s.last))
}

func at(what string) string {
	if what == "" {
		return ""
	}
	return ", last " + what
}
