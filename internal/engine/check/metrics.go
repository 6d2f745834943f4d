package check

import (
	"bufio"
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// openMetrics asks front-proxies for their metrics without credentials, at the URLs of clients. kcp answers if no
// token authenticator is on (kcp: pkg/proxy/mapping.go, WithOptionalAuthentication).
func openMetrics(ctx context.Context, s *Subject) outcome {
	isProxy := func(e external) bool { return e.component.Kind == topology.FrontProxy }
	all := slices.DeleteFunc(externals(s.Topology), func(e external) bool { return !isProxy(e) })
	if s.Topology.Local() || len(all) == 0 {
		return skipped("clients reach no front-proxy from outside of its cluster")
	}
	return every(all, func(e external) (o outcome) {
		conn, not := s.connectExternal(ctx, e)
		if conn == nil {
			return not
		}
		defer conn.Close()
		// A server that ends the connection wants credentials. One that does not answer at all is the subject of
		// another check.
		if code, err := statusOf(ctx, conn, e.url+"/metrics"); err == nil && code == http.StatusOK {
			o.warn("%s/metrics (%s) answers without credentials", e.url, e.component.ID())
		}
		return o
	})
}

// statusOf returns the HTTP status of a GET request on a connection.
func statusOf(ctx context.Context, conn *tls.Conn, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return 0, err
	}
	req.Close = true
	if err := req.Write(conn); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
