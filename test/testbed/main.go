// Testbed builds and runs what the tests of kcpctl need in the flesh: a Kubernetes node of the real parts, kcp's real
// binaries and their images, on one Linux machine, without Docker and without a registry. README.md tells how to use it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
