// Command fake stands in for kcp's binaries: it serves /readyz with the certificate that it is given, and misbehaves as
// the environment variable FAKE says.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func flag(name string) string {
	for _, arg := range os.Args {
		if v, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return v
		}
	}
	return ""
}

func main() {
	mode := os.Getenv("FAKE")
	fmt.Println("starting", mode)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	switch mode {
	case "crash":
		fmt.Fprintln(os.Stderr, "Error: no disk, no cry")
		os.Exit(3)
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
	}
	go func() {
		<-term
		fmt.Println("bye")
		os.Exit(0)
	}()
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if mode == "unready" {
			http.Error(w, "[+]ping ok\n[-]poststarthook/bootstrap failed: reason withheld\n[-]etcd failed: reason withheld", 500)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	addr := flag("bind-address") + ":" + flag("secure-port")
	fmt.Println(http.ListenAndServeTLS(addr, flag("tls-cert-file"), flag("tls-private-key-file"), nil))
	os.Exit(1)
}
