package download

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"time"

	"github.com/kcpctl/kcpctl/internal/kit/atomicfile"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

const (
	defaultStall = 30 * time.Second
	// connectTimeout is short: without a network, the user should not have to wait for the error.
	connectTimeout = 5 * time.Second
	attempts       = 4
)

// statusError is an answer without the file.
type statusError struct {
	code   int
	status string
}

func (e *statusError) Error() string { return "the server answers " + e.status }

// stallError is the cause of a request that ended because the server stopped sending.
type stallError struct{ after time.Duration }

func (e stallError) Error() string { return fmt.Sprintf("the server sent nothing for %s", e.after) }

// isFinal reports whether another attempt would fail in the same way.
func isFinal(err error) bool {
	if _, ok := errors.AsType[*os.PathError](err); ok { // the disk
		return true
	}
	status, ok := errors.AsType[*statusError](err)
	return ok && status.code < 500 && status.code != http.StatusTooManyRequests &&
		status.code != http.StatusRequestTimeout
}

// cannotConnect reports whether an error is from before the connection was made.
func cannotConnect(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial"
}

// retry requests a file up to a few times, until read has all of it. It does not retry if the first attempt cannot
// connect.
func (s Source) retry(ctx context.Context, url string, read func(*http.Response) error) error {
	for n := 1; ; n++ {
		err := s.get(ctx, url, read)
		if err == nil || n == attempts || ctx.Err() != nil || isFinal(err) || n == 1 && cannotConnect(err) {
			return err
		}
		if err := poll.Pause(ctx, time.Duration(n)*200*time.Millisecond); err != nil {
			return err
		}
	}
}

// get requests a file. It gives up if the server sends nothing for some time, however long the whole file takes.
func (s Source) get(ctx context.Context, url string, read func(*http.Response) error) error {
	limit := cmp.Or(s.Stall, defaultStall)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(limit, func() { cancel(stallError{limit}) })
	defer stall.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := s.client().Do(req)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return &statusError{resp.StatusCode, resp.Status}
		}
		resp.Body = &progressReader{resp.Body, func() { stall.Reset(limit) }}
		err = read(resp)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (s Source) client() *http.Client {
	if s.Client != nil {
		return s.Client
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
	return &http.Client{Transport: t}
}

// progressReader calls progress whenever data arrives.
type progressReader struct {
	io.ReadCloser
	progress func()
}

func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	if n > 0 {
		r.progress()
	}
	return n, err
}

// maxBinary keeps an archive from filling the disk, in bytes. kcp's binaries have about 120 MB.
const maxBinary = 1 << 30

// extract atomically writes a binary of an archive to a path. In kcp's archives it is bin/<binary>.
func extract(archive *os.File, binary, to string) error {
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	z, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("no binary %s in it", binary)
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || path.Base(h.Name) != binary {
			continue
		}
		if h.Size > maxBinary {
			return fmt.Errorf("%s has %d bytes", h.Name, h.Size)
		}
		return atomicfile.WriteFrom(to, t, 0o755)
	}
}
