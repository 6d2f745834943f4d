// Run is go build with progress: go run ./test/gobuild/run [VARIABLE=VALUE]... FLAGS AND PACKAGES OF GO BUILD.
// Variables such as GOOS are those of the build.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/kcpctl/kcpctl/test/gobuild"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report := func(line string) { fmt.Fprintf(os.Stderr, "go build: %s\n", line) }
	args, variables := os.Args[1:], 0
	for variables < len(args) && !strings.HasPrefix(args[variables], "-") && strings.Contains(args[variables], "=") {
		variables++
	}
	build := gobuild.Build{Env: args[:variables], Args: args[variables:], Report: report}
	if err := build.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
