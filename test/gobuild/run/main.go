// Run is go build with progress: go run ./test/gobuild/run FLAGS AND PACKAGES OF GO BUILD.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kcpctl/kcpctl/test/gobuild"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report := func(line string) { fmt.Fprintf(os.Stderr, "go build: %s\n", line) }
	if err := (gobuild.Build{Args: os.Args[1:], Report: report}).Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
