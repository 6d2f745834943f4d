// Command fake stands in for kcp's binaries. It serves /readyz with the certificate of its flags; the environment
// variable FAKE makes it misbehave.
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

// init keeps main on the first thread, which the mode zombie ends alone. Only init can do that.
func init() { runtime.LockOSThread() }

func flag(name string) string {
	for _, arg := range os.Args {
		if v, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return v
		}
	}
	return ""
}

// lingering is how long a dead process of the mode zombie holds its port at most: until its directory has a file called
// gone.
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
		// Only the first thread ends: the process counts as dead, and its other threads still hold its sockets.
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
			http.Error(w, "[+]ping ok\n[-]poststarthook/bootstrap failed: reason withheld\n[-]etcd failed: "+
				"reason withheld", 500)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	addr := flag("bind-address") + ":" + flag("secure-port")
	fmt.Println(http.ListenAndServeTLS(addr, flag("tls-cert-file"), flag("tls-private-key-file"), nil))
	os.Exit(1)
}
