// Command fake stands in for kcp's binaries: it serves /readyz with the certificate that it is given, and misbehaves as
// the environment variable FAKE says.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// init keeps main on the first thread, which the mode zombie ends alone: nothing that runs later could.
func init() { runtime.LockOSThread() }

func flag(name string) string {
	for _, arg := range os.Args {
		if v, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return v
		}
	}
	return ""
}

// lingering is how long a dead process of the mode zombie holds its port at most. It goes before if there is a file gone in
// its folder.
const lingering = 30 * time.Second

func main() {
	mode := os.Getenv("FAKE")
	fmt.Println("starting", mode)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	switch mode {
	case "crash":
		fmt.Fprintln(os.Stderr, "Error: no disk, no cry")
		os.Exit(3)
	case "deaf", "hung":
		signal.Ignore(syscall.SIGTERM)
	case "zombie":
		go serve(mode)
		<-term
		go func() {
			for over := time.Now().Add(lingering); time.Now().Before(over); time.Sleep(10 * time.Millisecond) {
				if _, err := os.Stat("gone"); err == nil {
					break
				}
			}
			os.Exit(0)
		}()
		// Only this thread ends, the first one: the process counts as dead, and the others still hold what it has.
		syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
	go func() {
		<-term
		fmt.Println("bye")
		os.Exit(0)
	}()
	serve(mode)
}

func serve(mode string) {
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if mode == "unready" || mode == "hung" {
			http.Error(w, "[+]ping ok\n[-]poststarthook/bootstrap failed: reason withheld\n[-]etcd failed: reason withheld", 500)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	addr := flag("bind-address") + ":" + flag("secure-port")
	fmt.Println(http.ListenAndServeTLS(addr, flag("tls-cert-file"), flag("tls-private-key-file"), nil))
	os.Exit(1)
}
