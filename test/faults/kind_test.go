package faults

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/test/standin"
)

// kind is a way in which a request to an API server fails.
type kind struct {
	name string
	// executed means that the API server executes the request before it fails.
	executed bool
	// answers means that kcpctl receives a response.
	answers bool
	// kills means that kcpctl is killed.
	kills bool
	// fits reports whether a request can fail in this way. Nil means all requests.
	fits func(*http.Request) bool
	fail func(*exchange)
}

// kinds returns the ways in which requests fail.
func kinds() []kind {
	return []kind{
		{name: "timeout", executed: true, answers: true, fail: (*exchange).timeout},
		{name: "429", answers: true, fail: (*exchange).tooMany},
		{name: "500", answers: true, fail: (*exchange).internal},
		{name: "reset before", fail: (*exchange).reset},
		{name: "reset after", executed: true, fail: (*exchange).reset},
		{name: "conflict", answers: true, fits: writes, fail: (*exchange).conflict},
		{name: "killed before", kills: true, fail: (*exchange).die},
		{name: "killed after", kills: true, executed: true, fail: (*exchange).die},
	}
}

// hangs is a further kind: there is no response until the client gives up. Such a case takes a minute.
func hangs() kind { return kind{name: "no answer", fail: (*exchange).hang} }

// writes reports whether a request changes something, or would without its dry run. Access reviews do not count.
func writes(r *http.Request) bool {
	return r.Method != http.MethodGet && !standin.Forwards(r) && !strings.HasSuffix(r.URL.Path, "reviews")
}

// endless reports whether the response to a request does not end by itself.
func endless(r *http.Request) bool {
	return r.URL.Query().Get("watch") == "true" || standin.Forwards(r)
}

// exchange is a failing request and its response.
type exchange struct {
	w    http.ResponseWriter
	conn net.Conn
	// gone is closed when the client has given up.
	gone <-chan struct{}
	// kill kills the process that sent the request.
	kill func()
}

// timeout responds as an API server whose etcd was too slow. The client cannot know whether the request was executed.
func (x *exchange) timeout() {
	x.status(apierrors.NewTimeoutError("request did not complete within requested timeout - context deadline exceeded", 0))
}

// tooMany responds as API priority and fairness does.
func (x *exchange) tooMany() {
	x.w.Header().Set("Retry-After", "1")
	http.Error(x.w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}

// internal responds as an API server whose etcd elects a leader.
func (x *exchange) internal() {
	x.status(apierrors.NewInternalError(errors.New("etcdserver: leader changed")))
}

// conflict responds as an API server after a concurrent write.
func (x *exchange) conflict() {
	x.status(apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, "object",
		errors.New("the object has been modified; please apply your changes to the latest version and try again")))
}

// status responds with an error of the Kubernetes API.
func (x *exchange) status(err *apierrors.StatusError) {
	s := err.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(int(s.Code))
	_ = json.NewEncoder(x.w).Encode(s)
}

// reset breaks the connection, with all other requests on it.
func (x *exchange) reset() {
	conn := x.conn
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // the client receives an RST
	}
	_ = conn.Close()
	panic(http.ErrAbortHandler)
}

// die kills the process, so there is no response.
func (x *exchange) die() {
	x.kill()
	panic(http.ErrAbortHandler)
}

// hang does not respond.
func (x *exchange) hang() {
	<-x.gone
	panic(http.ErrAbortHandler)
}
