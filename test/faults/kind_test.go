//go:build integration

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
)

// kind is a way in which a request to an API server fails.
type kind struct {
	name string
	// executed requests fail after the API server has done what they ask for.
	executed bool
	// answers says that kcpctl is told of the failure.
	answers bool
	// kills says that it is kcpctl that dies.
	kills bool
	// fits tells which requests fail in this way; nil is all.
	fits func(*http.Request) bool
	fail func(*exchange)
}

// kinds are the ways in which requests fail.
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

// hangs is a way besides: nobody answers, until whoever asked gives up. Such a case takes a minute.
func hangs() kind { return kind{name: "no answer", fail: (*exchange).hang} }

// writes tells whether a request is to change something, or tries to in a dry run. A review is a question.
func writes(r *http.Request) bool {
	return r.Method != http.MethodGet && !forwards(r) && !strings.HasSuffix(r.URL.Path, "reviews")
}

// forwards tells whether a request is for a port-forward.
func forwards(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/portforward") }

// endless tells whether the answer to a request does not end by itself.
func endless(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" || forwards(r) }

// exchange is a request that fails, and how to answer it.
type exchange struct {
	w    http.ResponseWriter
	conn net.Conn
	// gone is closed when whoever asked has given up.
	gone <-chan struct{}
	// kill ends the process that made the request.
	kill func()
}

// timeout is how an API server answers when etcd was too slow for it, which says nothing about what etcd has done.
func (x *exchange) timeout() {
	x.status(apierrors.NewTimeoutError("request did not complete within requested timeout - context deadline exceeded", 0))
}

// tooMany is how API priority and fairness rejects a request.
func (x *exchange) tooMany() {
	x.w.Header().Set("Retry-After", "1")
	http.Error(x.w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}

// internal is how an API server answers while its etcd elects a leader.
func (x *exchange) internal() {
	x.status(apierrors.NewInternalError(errors.New("etcdserver: leader changed")))
}

// conflict is how an API server answers when somebody else has written meanwhile.
func (x *exchange) conflict() {
	x.status(apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, "object",
		errors.New("the object has been modified; please apply your changes to the latest version and try again")))
}

// status answers as API servers do that say no.
func (x *exchange) status(err *apierrors.StatusError) {
	s := err.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(int(s.Code))
	_ = json.NewEncoder(x.w).Encode(s)
}

// reset breaks the connection, and with it whatever else is under way on it.
func (x *exchange) reset() {
	conn := x.conn
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // the other end gets an RST
	}
	_ = conn.Close()
	panic(http.ErrAbortHandler)
}

// die kills the process. Nobody is there to get an answer.
func (x *exchange) die() {
	x.kill()
	panic(http.ErrAbortHandler)
}

// hang gives no answer.
func (x *exchange) hang() {
	<-x.gone
	panic(http.ErrAbortHandler)
}
