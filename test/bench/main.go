// Bench measures the speed and memory of kcpctl, next to tools for the same purpose, and prints ratios. It fails only
// if something does not work, not if something is slow. It runs on Linux, from the root of the repository:
//
//	go run ./test/bench [-runs N] [-o json] [CASE...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// bench is the environment of every case.
type bench struct {
	kcpctl string // absolute path
	log    io.Writer
	report report
}

// benchCase is one measurement.
type benchCase struct {
	name, does string
	runs       int // unless set with -runs
	measure    func(ctx context.Context, b *bench, runs int) error
}

// cases returns the cases in the order in which they run.
func cases() []benchCase {
	return []benchCase{
		{"version", "kcpctl version, and kubectl version --client", 20, measureVersion},
		{"render", "kcpctl render of 3, 100 and 1000 shards with all their certificates", 5, measureRender},
		{"scale", "commands of kcpctl on 10 and 100 shards, with a real API server and simulated pods", 1, measureScale},
		{"cluster", "kcpctl up of three shards on the testbed, or on the cluster of E2E_KUBECONFIG", 3, measureCluster},
		{"local", "kcpctl up --local of three shards, and kcp's own sharded-test-server", 3, measureLocal},
		{"local-scale", "kcpctl up --local of 1, 2 and 5 shards", 1, measureLocalScale},
		{"workloads", "Deployments of ten workspaces over two physical clusters: latency, memory, requests at rest, registration", 1, measureWorkloads},
		{"running", "the same over two nodes of the testbed: from create until the pods run, and the same without kcp", 1, measureRunning},
		{"fleet", "the controller with 1,000 workspaces, 100,000 objects and 100 simulated clusters, and with a tenth of that", 1, measureFleet},
	}
}

func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	runs := flags.Int("runs", 0, "number of runs; 0 means the default of each case")
	output := flags.String("o", "", "json: print the report as JSON")
	kcpctl := flags.String("kcpctl", "bin/kcpctl", "the binary to measure")
	flags.Usage = func() { usageText(flags) }
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	chosen, err := choose(flags.Args())
	if err == nil && (*runs < 0 || *output != "" && *output != "json") {
		err = errors.New("invalid flag: -runs must not be negative, and -o must be json")
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		flags.Usage()
		return 2
	}
	b := &bench{log: stderr}
	if b.kcpctl, err = binary(*kcpctl); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	b.report.Machine = machine()
	code := b.measure(ctx, chosen, *runs)
	if err := b.report.print(stdout, *output == "json"); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return code
}

// measure runs the cases. A failure does not stop the other cases, an interrupt does.
func (b *bench) measure(ctx context.Context, chosen []benchCase, runs int) int {
	code := 0
	for _, c := range chosen {
		if runs > 0 {
			c.runs = runs
		}
		err := c.measure(ctx, b, c.runs)
		if ctx.Err() != nil {
			b.logf("%s: interrupted: %v", c.name, err) // err has what could not be removed
			return 130
		}
		if err != nil {
			b.logf("%s: %v", c.name, err)
			code = 1
		}
	}
	return code
}

// logf prints progress.
func (b *bench) logf(format string, args ...any) {
	fmt.Fprintf(b.log, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// choose returns the cases with these names, or all cases.
func choose(names []string) ([]benchCase, error) {
	all := cases()
	for _, name := range names {
		if !slices.ContainsFunc(all, func(c benchCase) bool { return c.name == name }) {
			return nil, fmt.Errorf("no case %q", name)
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(c benchCase) bool { return !slices.Contains(names, c.name) }), nil
}

// binary returns the path of the kcpctl to measure.
func binary(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s does not exist: run make build, and run this from the root of the repository", path)
	}
	return path, nil
}

func usageText(flags *flag.FlagSet) {
	w := flags.Output()
	fmt.Fprintln(w, "usage: go run ./test/bench [FLAG...] [CASE...]")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range cases() {
		fmt.Fprintf(t, "  %s\t%s (%d runs)\n", c.name, c.does, c.runs)
	}
	t.Flush() //nolint:errcheck // best effort
	flags.PrintDefaults()
}
