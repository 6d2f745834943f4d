package download

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// statusError is an answer that is not the file.
type statusError struct {
	code   int
	status string
}

func (e *statusError) Error() string { return "the server answers " + e.status }

// permanent tells whether asking again is of no use.
func (e *statusError) permanent() bool {
	return e.code < 500 && e.code != http.StatusTooManyRequests && e.code != http.StatusRequestTimeout
}

// stallError is the cause of a request that ended because the server sent nothing any more.
type stallError struct{ after time.Duration }

func (e stallError) Error() string { return fmt.Sprintf("the server sent nothing for %s", e.after) }

// retry tries a few times, unless it is of no use.
func (s Source) retry(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		var status *statusError
		var disk *os.PathError
		if err == nil || n == attempts || ctx.Err() != nil || errors.As(err, &disk) ||
			errors.As(err, &status) && status.permanent() {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(n) * 200 * time.Millisecond):
		}
	}
}

// get asks for a file from an offset on, and gives the answer to read. A server that sends nothing for too long is left.
func (s Source) get(ctx context.Context, url string, offset int64, read func(*http.Response) error) error {
	limit := cmp.Or(s.Stall, defaultStall)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(limit, func() { cancel(stallError{limit}) })
	defer stall.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := cmp.Or(s.Client, http.DefaultClient).Do(req)
	if err != nil {
		return because(ctx, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
		resp.Body = &alive{resp.Body, func() { stall.Reset(limit) }}
		return because(ctx, read(resp))
	case http.StatusRequestedRangeNotSatisfiable:
		if offset > 0 {
			return nil // there is nothing after what we have: the checksum decides
		}
	}
	return &statusError{resp.StatusCode, resp.Status}
}

// because names the cause of a request that was given up.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// alive tells of every piece that arrives.
type alive struct {
	io.ReadCloser
	arrived func()
}

func (a *alive) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if n > 0 {
		a.arrived()
	}
	return n, err
}
