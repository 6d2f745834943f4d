// Package etcd talks to a member of a managed etcd: it lists, inspects, adds and removes members. It sends a few of
// etcd's gRPC requests with the standard library, which avoids etcd's client and its dependencies. The JSON gateway
// would avoid them too, but it does not work if clients are restricted to hosts in their certificates (package render,
// etcdFlags).
package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
)

const (
	// requestTimeout is how long an answer may pause: longer than etcd itself waits for a quorum.
	requestTimeout = 10 * time.Second
	// maxAnswer is how much of an answer is read, in bytes.
	maxAnswer = 1 << 20
	// prefixSize is the size of the prefix of a gRPC message: the compression flag and the length.
	prefixSize = 5
)

// errNoAnswer means that a member did not answer in time.
var errNoAnswer = fmt.Errorf("no answer within %s", requestTimeout)

// errTooLarge means that more was asked for than is read at once.
var errTooLarge = errors.New("the answer is too large")

// Options are the member and the credentials of a Client.
type Options struct {
	// Host is a name in the member's certificate.
	Host string
	// CA are the PEM certificates of the authorities that the member's certificate is verified with.
	CA []byte
	// Pair is the client certificate.
	Pair pki.Pair
	// Dial connects to the member. DialTLS, which takes precedence, connects to an address with TLS.
	Dial    func(ctx context.Context) (net.Conn, error)
	DialTLS func(ctx context.Context, address string, c *tls.Config) (net.Conn, error)
}

// Client is a client for one member.
type Client struct {
	host string
	http *http.Client
}

// New returns a client. It does not connect.
func New(o Options) (*Client, error) {
	pair, err := tls.X509KeyPair(o.Pair.Cert, o.Pair.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", o.Host, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(o.CA) {
		return nil, fmt.Errorf("no certificate authority for %s", o.Host)
	}
	config := &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: serverName(o.Host),
		MinVersion: tls.VersionTLS12,
	}
	transport := &http.Transport{
		// Dial connects to the member itself: the proxy settings of the environment do not apply.
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return o.Dial(ctx) },
		TLSClientConfig: config, ForceAttemptHTTP2: true,
	}
	if o.DialTLS != nil {
		config.NextProtos = []string{"h2"}
		transport.DialTLSContext = func(ctx context.Context, _, address string) (net.Conn, error) {
			return o.DialTLS(ctx, address, config)
		}
	}
	return &Client{host: o.Host, http: &http.Client{Transport: transport}}, nil
}

// serverName is a host without a port.
func serverName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// Close closes the connection.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is the error with which a member refuses a request.
type Error struct {
	// Code is the gRPC status code.
	Code    int
	Message string
}

func (e *Error) Error() string { return e.Message }

// codeNotFound is the gRPC status code NOT_FOUND.
const codeNotFound = 5

// IsNotFound reports whether a request was about a member that does not exist.
func IsNotFound(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.Code == codeNotFound
}

// call sends a gRPC request with one message, and returns the message of the answer.
func (c *Client) call(ctx context.Context, method string, message []byte) ([]byte, error) {
	return c.callUpTo(ctx, method, message, maxAnswer)
}

// callUpTo reads an answer of less than some bytes.
func (c *Client) callUpTo(ctx context.Context, method string, message []byte, most int64) ([]byte, error) {
	ctx, arrives, stop := withPauses(ctx, requestTimeout, errNoAnswer)
	defer stop()
	resp, err := c.send(ctx, method, message)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(arrives(resp.Body), most)) // the trailers follow
	if err != nil {
		return nil, withCause(ctx, err)
	}
	if int64(len(raw)) == most {
		return nil, fmt.Errorf("%s: %w", method, errTooLarge)
	}
	if err := responseError(resp); err != nil {
		return nil, err
	}
	if len(raw) < prefixSize || raw[0] != 0 ||
		uint64(binary.BigEndian.Uint32(raw[1:prefixSize])) != uint64(len(raw)-prefixSize) {
		return nil, fmt.Errorf("%s: %w", method, errMalformed)
	}
	return raw[prefixSize:], nil
}

// send sends a gRPC request with one message. The caller closes the body of the answer.
func (c *Client) send(ctx context.Context, method string, message []byte) (*http.Response, error) {
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.host+"/etcdserverpb."+method,
		bytes.NewReader(append(body, message...)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, withCause(ctx, err)
	}
	return resp, nil
}

// withPauses returns a context that ends with a cause when no data arrives for a time: neither a first byte, nor the
// next one of the reader that arrives returns. A large answer over a slow connection takes as long as it takes.
func withPauses(ctx context.Context, longest time.Duration, cause error) (
	_ context.Context, arrives func(io.Reader) io.Reader, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(longest, func() { cancel(cause) })
	arrives = func(r io.Reader) io.Reader {
		return readerFunc(func(b []byte) (int, error) {
			timer.Reset(longest)
			defer timer.Stop() // what the caller does with the data counts as no pause
			return r.Read(b)
		})
	}
	return ctx, arrives, func() { timer.Stop(); cancel(nil) }
}

// readerFunc is a function that reads.
type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// withCause replaces the error of a canceled request by the cause.
func withCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err // without the URL, whose host is the same for all members
	}
	return err
}

// responseError returns the error of an answer, which is in its trailers, or in its header if it has no message.
func responseError(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP status %s", resp.Status)
	}
	from := resp.Trailer
	if from.Get("Grpc-Status") == "" {
		from = resp.Header
	}
	code, err := strconv.Atoi(from.Get("Grpc-Status"))
	if err != nil {
		return errors.New("not a gRPC response")
	}
	if code == 0 {
		return nil
	}
	message, err := url.PathUnescape(from.Get("Grpc-Message"))
	if err != nil {
		message = from.Get("Grpc-Message")
	}
	return &Error{Code: code, Message: message}
}
