// Command kcpctl brings up and runs kcp from one setup file.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/kcpctl/kcpctl/cmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(cmd.Main(ctx, os.Args[1:], cmd.System()))
}
