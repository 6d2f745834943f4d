// Command kcpctl deploys and operates kcp from a single setup file.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/kcpctl/kcpctl/cmd"
)

// gcPercent trades memory for speed: kcpctl is short-lived.
const gcPercent = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the process
	os.Exit(cmd.Main(ctx, os.Args[1:], cmd.System()))
}
