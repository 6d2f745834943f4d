package portforward

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/httpstream"
)

// connection is a connection to an API server whose streams never end by themselves.
type connection struct {
	httpstream.Connection
	closed bool
	// creating is called while a stream is created.
	creating func()
}

func (c *connection) CreateStream(http.Header) (httpstream.Stream, error) {
	if c.creating != nil {
		c.creating()
	}
	return &endless{ended: make(chan struct{})}, nil
}
func (c *connection) RemoveStreams(...httpstream.Stream) {}
func (c *connection) Close() error                       { c.closed = true; return nil }

// endless is a stream without data until it is reset.
type endless struct {
	httpstream.Stream
	ended chan struct{}
}

func (e *endless) Read([]byte) (int, error) { <-e.ended; return 0, io.EOF }
func (e *endless) Close() error             { return nil }
func (e *endless) Reset() error             { close(e.ended); return nil }

func TestTunnelClosesWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &connection{}
		tun := &tunnel{conn: c}
		first, err := tun.dial(t.Context(), 6443)
		require.NoError(t, err)
		second, err := tun.dial(t.Context(), 6443)
		require.NoError(t, err)

		require.NoError(t, first.Close())
		require.NoError(t, first.Close(), "again")
		time.Sleep(2 * idleTimeout)
		synctest.Wait()
		require.False(t, c.closed, "a stream is open")

		require.NoError(t, second.Close())
		time.Sleep(idleTimeout / 2)
		synctest.Wait()
		third, err := tun.dial(t.Context(), 6443)
		require.NoError(t, err)
		time.Sleep(2 * idleTimeout)
		synctest.Wait()
		require.False(t, c.closed, "a stream was opened in time")

		require.NoError(t, third.Close())
		time.Sleep(2 * idleTimeout)
		synctest.Wait()
		require.True(t, c.closed)
		require.Nil(t, tun.conn, "the next dial connects again")
	})
}

func TestTunnelDoesNotCloseUnderADial(t *testing.T) {
	idle := make(chan struct{})
	c := &connection{}
	tun := &tunnel{conn: c}
	c.creating = sync.OnceFunc(func() {
		go func() {
			defer close(idle)
			tun.closeIdle()
		}()
		time.Sleep(10 * time.Millisecond) // closeIdle waits for the dial, in which no stream is open yet
	})
	conn, err := tun.dial(t.Context(), 6443)
	require.NoError(t, err)
	<-idle
	require.False(t, c.closed, "a stream is open")
	require.NoError(t, conn.Close())
}

// ended is a stream of a port-forward that ends after its data, which comes late.
type ended struct {
	httpstream.Stream
	after time.Duration
	data  io.Reader
}

func (e *ended) Read(p []byte) (int, error) {
	time.Sleep(e.after)
	e.after = 0
	return e.data.Read(p)
}
func (e *ended) Reset() error { return nil }

// A kubelet that is busy reports the cause after the end of the data.
func TestReadReturnsTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		after   time.Duration
		message string
		want    string
	}{
		"nothing listens":        {0, "failed to connect to localhost:6443: connection refused", "demo:6443: connection refused"},
		"of a busy kubelet":      {errorWait / 2, "no such sandbox", "demo:6443: no such sandbox"},
		"of a kubelet that hung": {2 * errorWait, "no such sandbox", "EOF"},
		"the pod ended it":       {0, "", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stream{
					Stream: &ended{data: strings.NewReader("")}, errors: &ended{after: tc.after, data: strings.NewReader(tc.message)},
					remote: "demo:6443", reported: make(chan struct{}),
				}
				go s.readError()
				_, err := s.Read(make([]byte, 1))
				require.EqualError(t, err, tc.want)
				<-s.reported
			})
		})
	}
}
