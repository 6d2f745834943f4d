// Command kcpctl deploys and operates kcp from a single setup file.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/kcpctl/kcpctl/cmd"
	"github.com/kcpctl/kcpctl/internal/kit/heap"
)

func main() {
	env := cmd.System()
	if os.Getenv("GOGC") == "" {
		env.Serve = heap.Pace()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the process
	os.Exit(cmd.Main(ctx, os.Args[1:], env))
}
