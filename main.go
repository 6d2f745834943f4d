// Command kcpctl brings up and runs kcp from one setup file.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/kcpctl/kcpctl/cmd"
)

// garbage is how much the heap may grow before it is collected, in percent: a command is over soon, and collecting costs it
// more than memory does.
const garbage = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(cmd.Main(ctx, os.Args[1:], cmd.System()))
}
