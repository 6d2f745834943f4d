// Package transfer sends the database of an etcd to a process that has the volume of its data, in a pod that kcpctl
// creates for that. The process makes it the data of the volume (see package datadir).
package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/etcd/datadir"
)

// Port is the port of the loopback interface of the pod on which a Server listens. Only port-forwards reach it.
const Port = 2390

// Command is the command of kcpctl that runs a Server. FlagDirectory is its flag with the data directory.
const (
	Command       = "receive-database"
	FlagDirectory = "data-dir"
)

const (
	pathReady    = "/v1/ready"
	pathDatabase = "/v1/database"
	pathAside    = "/v1/aside"
	// headerDigest is the SHA-256 of the database that is sent.
	headerDigest = "Kcpctl-Sha256"
	querySuffix  = "suffix"

	// stallTimeout is how long a transfer may pause.
	stallTimeout = time.Minute
	// IdleTimeout is how long a Server waits for the next request: a run that was killed leaves a process behind, which
	// ends.
	IdleTimeout = 10 * time.Minute
)

// errIdle means that a server has waited for too long.
var errIdle = fmt.Errorf("no request for %s", IdleTimeout)

// errDigest means that a database has arrived with errors.
var errDigest = errors.New("the SHA-256 of the database differs from the one that was sent")

// result is the answer to a request that succeeds.
type result struct {
	// Aside is where previous data is now.
	Aside string `json:"aside,omitempty"`
}

// Server receives a database for a data directory.
type Server struct {
	Directory datadir.Directory
	// Log is called with each thing that happens.
	Log func(message string)

	// mu is held while the directory changes.
	mu sync.Mutex
}

// Serve answers requests until ctx ends, or none has come for IdleTimeout.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(IdleTimeout, func() { cancel(errIdle) })
	mux := http.NewServeMux()
	handle := func(pattern string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			idle.Stop()
			defer idle.Reset(IdleTimeout)
			h(w, r)
		})
	}
	handle("GET "+pathReady, func(http.ResponseWriter, *http.Request) {})
	handle("PUT "+pathDatabase, s.place)
	handle("POST "+pathAside, s.setAside)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: stallTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(l)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// place receives a database.
func (s *Server) place(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := r.Header.Get(headerDigest)
	if is, err := s.Directory.Holds(r.ContentLength, digest); err != nil || is {
		s.answer(w, "", err, "holds the database already")
		return
	}
	aside, err := s.Directory.Place(r.URL.Query().Get(querySuffix), func(path string) error {
		return receive(path, &unstalled{r.Body, http.NewResponseController(w)}, digest)
	})
	s.answer(w, aside, err, fmt.Sprintf("received %d bytes", r.ContentLength))
}

// receive writes what it reads to a file, and compares the digest.
func receive(path string, from io.Reader, digest string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), from)
	if err = errors.Join(err, f.Close()); err == nil && hex.EncodeToString(sum.Sum(nil)) != digest {
		err = errDigest
	}
	return err
}

func (s *Server) setAside(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	aside, err := s.Directory.SetAside(r.URL.Query().Get(querySuffix))
	s.answer(w, aside, err, "moved the data aside")
}

// answer sends the result of a request, and logs it.
func (s *Server) answer(w http.ResponseWriter, aside string, err error, done string) {
	if err != nil {
		s.Log(err.Error())
		http.Error(w, err.Error(), codeOf(err))
		return
	}
	if aside != "" {
		done += "; what was there is kept: " + aside
	}
	s.Log(done)
	_ = json.NewEncoder(w).Encode(result{aside}) // a client that is gone repeats the request
}

// codeOf returns the HTTP status of an error.
func codeOf(err error) int {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return http.StatusInsufficientStorage
	case errors.Is(err, errDigest), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusBadRequest // the transfer has failed, and can be repeated
	}
	return http.StatusInternalServerError
}

// unstalled reads the body of a request, and fails if it pauses for too long.
type unstalled struct {
	io.Reader
	control *http.ResponseController
}

func (u *unstalled) Read(p []byte) (int, error) {
	if err := u.control.SetReadDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}
