// Testbed builds and runs what the tests of kcpctl need: a real Kubernetes node, and the real binaries and images of
// kcp, on one Linux machine, without Docker and without a registry. README.md describes its use.
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
