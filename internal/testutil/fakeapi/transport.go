package fakeapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
)

// Transport carries requests to a server without a network.
type Transport struct {
	Server *Server
	// Before is called before each request. Its error is that of the network. It can wait. Nil does nothing.
	Before func(*http.Request) error

	mu      sync.Mutex
	watches map[*io.PipeWriter]context.CancelFunc
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(&bytes.Buffer{})
	}
	defer r.Body.Close()
	if t.Before != nil {
		if err := t.Before(r); err != nil {
			return nil, err
		}
	}
	if r.URL.Query().Get("watch") != "" {
		return t.watch(r), nil
	}
	w := &answerWriter{header: http.Header{}, code: http.StatusOK}
	t.Server.ServeHTTP(w, r)
	return response(r, w.code, w.header, io.NopCloser(&w.body)), nil
}

// Break ends the open watches.
func (t *Transport) Break() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w, cancel := range t.watches {
		_ = w.CloseWithError(io.ErrUnexpectedEOF)
		cancel()
	}
}

// watch answers with a body to which the server writes.
func (t *Transport) watch(r *http.Request) *http.Response {
	ctx, cancel := context.WithCancel(r.Context())
	reader, writer := io.Pipe()
	w := &streamWriter{header: http.Header{}, pipe: writer, began: make(chan int, 1)}
	t.mu.Lock()
	if t.watches == nil {
		t.watches = map[*io.PipeWriter]context.CancelFunc{}
	}
	t.watches[writer] = cancel
	t.mu.Unlock()
	go func() {
		<-ctx.Done() // the client has closed the body, or has ended
		_ = reader.Close()
	}()
	go func() {
		t.Server.ServeHTTP(w, r.WithContext(ctx))
		w.WriteHeader(http.StatusOK)
		_ = writer.Close()
		cancel()
		t.mu.Lock()
		delete(t.watches, writer)
		t.mu.Unlock()
	}()
	return response(r, <-w.began, w.header, &streamBody{reader, cancel})
}

func response(r *http.Request, code int, header http.Header, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Body: body, ContentLength: -1, Request: r,
	}
}

// answerWriter collects an answer.
type answerWriter struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (w *answerWriter) Header() http.Header         { return w.header }
func (w *answerWriter) WriteHeader(code int)        { w.code = code }
func (w *answerWriter) Write(b []byte) (int, error) { return w.body.Write(b) }

// streamWriter sends an answer piece by piece.
type streamWriter struct {
	header http.Header
	pipe   *io.PipeWriter
	once   sync.Once
	began  chan int
}

func (w *streamWriter) Header() http.Header  { return w.header }
func (w *streamWriter) WriteHeader(code int) { w.once.Do(func() { w.began <- code }) }
func (w *streamWriter) Flush()               { w.WriteHeader(http.StatusOK) }

func (w *streamWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(b)
}

// streamBody ends the request when it is closed.
type streamBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *streamBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}
