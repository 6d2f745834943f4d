package apiserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports of servers are below those that Linux assigns to the clients of other tests: such a client would take a
// port between the moment when it is found free and the moment when a server listens.
const (
	firstPort = 20000
	lastPort  = 31999
)

// freePorts returns unused ports of this machine. Servers that start at the same time search in different places.
func freePorts(n int) ([]string, error) {
	var out []string
	count := lastPort - firstPort + 1
	start := rand.IntN(count)
	for i := range count {
		port := strconv.Itoa(firstPort + (start+i)%count)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue
		}
		_ = l.Close()
		if out = append(out, port); len(out) == n {
			return out, nil
		}
	}
	return nil, fmt.Errorf("only %d of %d ports from %d to %d are free", len(out), n, firstPort, lastPort)
}
