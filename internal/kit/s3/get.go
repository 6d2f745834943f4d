package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Get returns the content of an object. The error wraps fs.ErrNotExist if there is none. If the connection breaks, the
// reader requests the rest of the same version of the object. The caller must close it.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	key, err := b.key(name)
	if err != nil {
		return nil, err
	}
	o := &object{ctx: ctx, bucket: b, request: request{does: reads, method: http.MethodGet, key: key}}
	if err := o.open(); err != nil {
		return nil, err
	}
	return o, nil
}

// object reads an object.
type object struct {
	ctx     context.Context
	bucket  *Bucket
	request request
	body    io.ReadCloser
	etag    string
	read    int64
	size    int64
	broken  error // why the body ended
	failed  int   // how often it ended, since the last byte
}

// open requests the object, or the rest of it.
func (o *object) open() error {
	r := o.request
	if o.read > 0 || o.etag != "" {
		r.header = http.Header{"Range": {fmt.Sprintf("bytes=%d-", o.read)}, "If-Match": {o.etag}}
	}
	return o.bucket.do(o.ctx, r, func(resp *http.Response) error {
		if err := o.accept(resp, r.header != nil); err != nil {
			resp.Body.Close()
			return err
		}
		o.body = resp.Body
		return nil
	})
}

// accept checks that an answer is the object, or the rest of it.
func (o *object) accept(resp *http.Response, rest bool) error {
	if !rest {
		o.etag = resp.Header.Get("ETag")
		o.size = resp.ContentLength
		if o.size < 0 {
			return errors.New("the server does not send the size")
		}
		return nil
	}
	start := fmt.Sprintf("bytes %d-", o.read)
	if resp.StatusCode != http.StatusPartialContent || !strings.HasPrefix(resp.Header.Get("Content-Range"), start) {
		return fmt.Errorf("%s, and the server does not send the rest", o.position())
	}
	return nil
}

func (o *object) position() string {
	return fmt.Sprintf("the connection broke after %d of %d bytes", o.read, o.size)
}

// Read implements io.Reader.
func (o *object) Read(p []byte) (int, error) {
	for {
		if o.broken != nil {
			if err := o.resume(); err != nil {
				return 0, err
			}
		}
		n, err := o.body.Read(p)
		o.read += int64(n)
		if n > 0 {
			o.failed = 0
		}
		switch {
		case err == nil:
			return n, nil
		case o.read == o.size:
			return n, io.EOF
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		}
		o.broken = err
		if n > 0 {
			return n, nil
		}
	}
}

// resume opens the rest of the object.
func (o *object) resume() error {
	o.failed++
	if o.ctx.Err() != nil {
		return o.bucket.explain(o.request, context.Cause(o.ctx))
	}
	if o.failed >= attempts || o.etag == "" { // without an ETag, the rest can be from another version
		return o.bucket.explain(o.request, fmt.Errorf("%s: %w", o.position(), o.broken))
	}
	if err := pause(o.ctx, o.failed); err != nil {
		return o.bucket.explain(o.request, err)
	}
	o.body.Close()
	if err := o.open(); err != nil {
		return err
	}
	o.broken = nil
	return nil
}

// Close implements io.Closer.
func (o *object) Close() error { return o.body.Close() }
