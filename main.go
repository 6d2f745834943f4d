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
	os.Exit(cmd.Main(interruptible(), os.Args[1:], env))
}

// interruptible returns a context that ends with the first signal that asks this process to end, so that it ends what
// it has begun. The signal of a closed terminal often comes twice, and a reader of the output that has ended is no
// reason to stop halfway: neither kills the process.
func interruptible() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(ends, syscall.SIGHUP)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // writing then fails instead
	go func() {
		if first := <-ends; first != syscall.SIGHUP {
			signal.Reset(first) // a second Ctrl-C kills the process; another signal that came with it does not
		}
		cancel()
	}()
	return ctx
}
