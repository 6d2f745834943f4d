package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"runtime"
	"strconv"
	"time"

	"github.com/kcpctl/kcpctl/internal/local"
	"github.com/kcpctl/kcpctl/internal/local/download"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	f, err := setup.Load(os.Args[2], os.Stdin)
	must(err)
	fo, err := local.UserFolders(os.Getenv)
	must(err)
	base, _ := strconv.Atoi(os.Getenv("BASE"))
	l, err := local.NewLayout(fo.State, f.Setup.Metadata.Name, int32(base))
	must(err)
	t := topology.BuildLocal(f.Setup, l.Topology())
	rt := local.New(t, l, local.Options{Version: "try", User: "me", Now: time.Now, Binaries: local.Binaries{
		Dir: os.Getenv("BIN"), Path: os.Getenv("PATH"), Source: download.Source{Dir: fo.Cache, OS: runtime.GOOS, Arch: runtime.GOARCH},
	}})
	defer rt.Close()
	began := time.Now()
	switch os.Args[1] {
	case "up", "fg":
		u := &run.Up{Topology: t, Runtime: rt, Setup: []byte("x"), Now: time.Now, Observe: func(e run.Event) {
			if e.Status == run.Pending {
				return
			}
			fmt.Printf("%6.2f %s %s %s: %s\n", time.Since(began).Seconds(), e.Scope, e.Name, e.Status, e.Message)
		}, Options: run.UpOptions{Timeout: 5 * time.Minute}}
		_, err := u.Run(ctx)
		must(err)
		if os.Args[1] == "fg" {
			err = rt.Wait(ctx)
			fmt.Println("wait:", err)
			must(rt.StopAll(context.Background()))
		}
	case "status":
		for _, c := range t.Components {
			s, err := rt.State(ctx, c)
			fmt.Printf("%s %+v %v\n", c.ID(), s, err)
		}
	case "down", "purge":
		items, err := rt.Objects(ctx)
		must(err)
		must(rt.StopAll(ctx))
		fmt.Printf("stopped %6.2f\n", time.Since(began).Seconds())
		must(rt.Delete(ctx, items))
		if os.Args[1] == "purge" {
			must(rt.Purge(ctx))
		}
	case "logs":
		must(rt.Logs(ctx, t.Component(topology.ID(os.Args[3])), run.LogOptions{Tail: 5, Follow: os.Getenv("F") != ""}, os.Stdout))
	}
	fmt.Printf("took %.2f\n", time.Since(began).Seconds())
}
