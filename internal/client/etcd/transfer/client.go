package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/etcd/datadir"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

const (
	// attempts is how often a transfer is tried whose connection breaks.
	attempts = 3
	// answerTimeout is how long the last answer may take: the server writes the data to its disk first.
	answerTimeout = 10 * time.Minute
	// startTimeout is how long a server may take to listen.
	startTimeout = 30 * time.Second
	pollInterval = 250 * time.Millisecond
	// reportInterval is the time between two reports of the progress.
	reportInterval = time.Second
	// maxAnswer is how much of an answer is read, in bytes.
	maxAnswer = 64 << 10
)

var (
	errStalled   = errors.New("the transfer makes no progress")
	errNotServed = fmt.Errorf("it does not listen within %s", startTimeout)
)

// Client sends a database to a Server.
type Client struct {
	// Dial connects to the server.
	Dial func(ctx context.Context) (net.Conn, error)
	// Volume names the volume in errors.
	Volume string
}

// Progress is called with the bytes that were sent and all bytes.
type Progress func(done, total int64)

// Place makes a file the data of the server's directory. It returns where the previous data is, or "".
func (c *Client) Place(ctx context.Context, file, suffix string, report Progress) (aside string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	digest, err := datadir.Digest(f)
	if err != nil {
		return "", err
	}
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	return c.repeated(ctx, func(ctx context.Context, stalled *time.Timer) (*http.Request, error) {
		body := &sending{Reader: io.NewSectionReader(f, 0, info.Size()), total: info.Size(), stalled: stalled,
			report: report}
		r, err := request(ctx, http.MethodPut, pathDatabase, suffix, body)
		if err != nil {
			return nil, err
		}
		r.ContentLength = info.Size()
		r.Header.Set(headerDigest, digest)
		r.Header.Set("Expect", "100-continue") // the server may hold it already
		return r, nil
	})
}

// SetAside moves the data of the server's directory aside. It returns where it is, or "" if there was none.
func (c *Client) SetAside(ctx context.Context, suffix string) (aside string, err error) {
	return c.repeated(ctx, func(ctx context.Context, _ *time.Timer) (*http.Request, error) {
		return request(ctx, http.MethodPost, pathAside, suffix, nil)
	})
}

func request(ctx context.Context, method, path, suffix string, body io.Reader) (*http.Request, error) {
	u := url.URL{Scheme: "http", Host: "volume", Path: path}
	if suffix != "" {
		u.RawQuery = url.Values{querySuffix: {suffix}}.Encode()
	}
	return http.NewRequestWithContext(ctx, method, u.String(), body)
}

// builder makes a request, which resets the timer that ends it.
type builder func(ctx context.Context, stalled *time.Timer) (*http.Request, error)

// repeated sends a request, again if the connection breaks: the server does not place the same data twice.
func (c *Client) repeated(ctx context.Context, build builder) (string, error) {
	if err := c.await(ctx); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		aside, again, err := c.once(ctx, build)
		if err == nil || !again || n == attempts || ctx.Err() != nil {
			return aside, err
		}
	}
}

// once sends a request. again means that it may succeed if it is repeated.
func (c *Client) once(ctx context.Context, build builder) (aside string, again bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(answerTimeout, func() { cancel(errStalled) })
	defer stalled.Stop()
	r, err := build(ctx, stalled)
	if err != nil {
		return "", false, err
	}
	resp, err := c.http().Do(r)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return "", true, fmt.Errorf("transfer to %s: %w", c.Volume, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", true, fmt.Errorf("transfer to %s: %w", c.Volume, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", resp.StatusCode == http.StatusBadRequest, c.refused(resp.StatusCode, strings.TrimSpace(string(raw)))
	}
	var out result
	err = json.Unmarshal(raw, &out)
	return out.Aside, false, err
}

// refused is the error of an answer.
func (c *Client) refused(code int, message string) error {
	hint := "rerun the command"
	if code == http.StatusInsufficientStorage {
		hint = "expand the volume, or delete data on it that earlier restores have moved aside, and rerun the command"
	}
	return clierr.New(clierr.Failed, hint, "write to %s: %s; the previous data is kept", c.Volume, message)
}

// await waits until the server listens.
func (c *Client) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errNotServed)
	defer cancel()
	return poll.Until(ctx, pollInterval, nil, func() (string, error) {
		r, err := request(ctx, http.MethodGet, pathReady, "", nil)
		if err != nil {
			return "", err
		}
		resp, err := c.http().Do(r)
		if err != nil {
			return fmt.Sprintf("connect to the pod for %s: %v", c.Volume, err), nil
		}
		return "", resp.Body.Close()
	})
}

// http returns a client for one request: a broken connection is not used again.
func (c *Client) http() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx) },
		DisableKeepAlives:     true,
		ExpectContinueTimeout: answerTimeout,
	}}
}

// sending is a reader that reports its progress.
type sending struct {
	io.Reader
	done, total int64
	stalled     *time.Timer
	report      Progress
	reported    time.Time
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.done += int64(n)
	if s.done < s.total {
		s.stalled.Reset(stallTimeout)
	} else {
		s.stalled.Reset(answerTimeout)
	}
	if now := time.Now(); now.Sub(s.reported) >= reportInterval {
		s.reported = now
		s.report(s.done, s.total)
	}
	return n, err
}
