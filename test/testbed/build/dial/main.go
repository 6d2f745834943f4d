// Dial dials addresses and prints which of them accept connections. Without arguments it does nothing, so that a pod
// stays in which a test can run it.
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 1 {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
		<-end
		return
	}
	var all sync.WaitGroup
	for _, address := range os.Args[1:] {
		all.Go(func() {
			conn, err := net.DialTimeout("tcp", address, 3*time.Second)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			conn.Close()
			fmt.Println(address)
		})
	}
	all.Wait()
}
