// Command kcpctl deploys and operates kcp from a single setup file.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/kcpctl/kcpctl/cmd"
)

// ballast is the size of memory that is never touched, but counts when the garbage collector decides when to run:
// commands with a small heap hardly collect, and the heap of a command for hundreds of shards is not multiplied.
const ballast = 32 << 20

// serving is how much the heap of a server may grow until the next collection, in percent: servers run for months,
// share the machine, and have little to collect.
const serving = 25

func main() {
	env := cmd.System()
	if os.Getenv("GOGC") == "" {
		memory := make([]byte, ballast)
		env.Serve = func() {
			runtime.KeepAlive(memory)
			memory = nil
			debug.SetGCPercent(serving)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the process
	os.Exit(cmd.Main(ctx, os.Args[1:], env))
}
