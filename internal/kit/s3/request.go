package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/tls"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

const (
	// attempts is how often a request is sent that fails for a reason that passes, with pauses of about 0.5, 1, 2 and 4
	// seconds.
	attempts   = 5
	firstPause = 500 * time.Millisecond
	// defaultStall is how long a request may make no progress. A whole transfer has no limit.
	defaultStall   = 60 * time.Second
	connectTimeout = 10 * time.Second
	// maxAnswer keeps a server from filling the memory, in bytes. A page of a list has about 500 kB.
	maxAnswer = 16 << 20
)

// request is a request for a bucket, or for an object in it. Its body is in memory, so that it can be sent again.
type request struct {
	does   action
	method string
	key    string
	query  url.Values
	header http.Header
	body   []byte
}

// stallError is the cause of a request that ended because nothing was sent or received.
type stallError struct{ after time.Duration }

func (e stallError) Error() string { return fmt.Sprintf("no progress for %s", e.after) }

// do sends a request until use has read its answer, or the error will not pass. Use must close the body.
func (b *Bucket) do(ctx context.Context, r request, use func(*http.Response) error) error {
	for n := 1; ; n++ {
		resp, err := b.send(ctx, r)
		if err == nil {
			err = use(resp)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return b.explain(r, context.Cause(ctx))
		case n == attempts || isFinal(err):
			return b.explain(r, err)
		}
		if err := pause(ctx, n); err != nil {
			return b.explain(r, err)
		}
	}
}

// pause waits before another attempt. Its length is random, so that clients that failed together do not return
// together.
func pause(ctx context.Context, failed int) error {
	limit := firstPause << (failed - 1)
	return poll.Pause(ctx, limit/2+rand.N(limit))
}

// isFinal reports whether another attempt would fail in the same way.
func isFinal(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return !e.passes()
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// send sends a request once. It returns an *Error if the server refuses it.
func (b *Bucket) send(ctx context.Context, r request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{ctx: ctx, cancel: cancel, limit: b.stall}
	w.timer = time.AfterFunc(w.limit, func() { cancel(stallError{w.limit}) })
	resp, err := b.client.Do(b.build(r, w))
	w.timer.Stop()
	if err != nil {
		err = w.cause(err)
		cancel(nil)
		return nil, err
	}
	resp.Body = &watchedBody{resp.Body, w}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, refused(resp)
	}
	return resp, nil
}

// build returns a signed HTTP request that reports its progress to a watchdog.
func (b *Bucket) build(r request, w *watchdog) *http.Request {
	u := *b.base
	if r.key != "" {
		u.Path += "/" + r.key
	}
	u.RawQuery = r.query.Encode()
	req := (&http.Request{Method: r.method, URL: &u, Host: u.Host, Header: http.Header{}}).WithContext(w.ctx)
	for name, values := range r.header {
		req.Header[name] = values
	}
	hash := sum(r.body)
	req.Header.Set("X-Amz-Content-Sha256", hash)
	if r.method == http.MethodPut {
		digest := md5.Sum(r.body) // S3 requires it in buckets with object locks
		req.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(digest[:]))
	}
	if len(r.body) > 0 {
		req.Header.Set("Expect", "100-continue") // a server that refuses the request does so before it is sent
		req.Body = &watchedUpload{bytes.NewReader(r.body), w}
		req.ContentLength = int64(len(r.body))
	}
	sign(req, hash, b.credentials, scope{b.region, "s3"}, time.Now())
	return req
}

// watchdog ends a request that makes no progress.
type watchdog struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	limit  time.Duration
	timer  *time.Timer
}

// cause returns why a request or its answer ended: the URL of an error of net/http is left out.
func (w *watchdog) cause(err error) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// watchedUpload is the body of a request. net/http reads it in small pieces, as it sends them.
type watchedUpload struct {
	io.Reader
	watchdog *watchdog
}

func (u *watchedUpload) Read(b []byte) (int, error) {
	u.watchdog.timer.Reset(u.watchdog.limit)
	return u.Reader.Read(b)
}

func (u *watchedUpload) Close() error { return nil }

// watchedBody is the body of an answer. The limit is only for the server: the caller may take its time between reads.
type watchedBody struct {
	io.ReadCloser
	watchdog *watchdog
}

func (r *watchedBody) Read(b []byte) (int, error) {
	r.watchdog.timer.Reset(r.watchdog.limit)
	n, err := r.ReadCloser.Read(b)
	r.watchdog.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.watchdog.cause(err)
	}
	return n, err
}

func (r *watchedBody) Close() error {
	r.watchdog.cancel(nil)
	return r.ReadCloser.Close()
}

// call sends a request and decodes the answer, if into is not nil.
func (b *Bucket) call(ctx context.Context, r request, into any) (header http.Header, _ error) {
	err := b.do(ctx, r, func(resp *http.Response) error {
		defer resp.Body.Close()
		header = resp.Header
		return decode(resp, into)
	})
	return header, err
}

// decode reads an answer. It can be an error although the status is 200: S3 sends the status first where it needs time.
func decode(resp *http.Response, into any) error {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if e := (errorAnswer{}); xml.Unmarshal(raw, &e) == nil {
		return e.of(resp)
	}
	if into == nil {
		return nil
	}
	if err := xml.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("the server answers %s, but the content is not from S3: %w", resp.Status, err)
	}
	return nil
}
