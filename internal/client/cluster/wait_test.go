package cluster

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// A finalizer can keep an object forever. The user learns which, and not every quarter of a second.
func TestWaitForTellsWhatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		c := &Client{KubeContext: "dev", notify: func(format string, args ...any) {
			told = append(told, fmt.Sprintf(format, args...))
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		err := c.WaitFor(ctx, func() (string, error) {
			switch passed := time.Since(began); {
			case passed < 10*time.Second:
				return "a to be gone", nil
			case passed < time.Minute:
				return "b to be gone", nil
			}
			return "", nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{"waiting for b to be gone (context dev)"}, told)
		require.ErrorContains(t, c.WaitFor(ctx, func() (string, error) { return "c to be gone", nil }), "wait for c to be gone")
	})
}

// mute is a server that accepts requests and never answers.
type mute struct{}

func (mute) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A cluster that does not answer is reported after ten seconds, and not waited for again at once.
func TestASilentClusterIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: mute{}}
		d, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "https://10.0.0.1:6443"}, client)
		require.NoError(t, err)
		c, err := New(topology.Cluster{Name: "eu"}, Options{
			API: func(topology.Cluster) (*API, error) { return &API{Context: "dev", Dynamic: d, HTTP: client}, nil },
			Now: time.Now, Notify: t.Logf,
		})
		require.NoError(t, err)
		for _, waits := range []time.Duration{10 * time.Second, 0} {
			began := time.Now()
			err = c.Connect(t.Context())
			require.ErrorIs(t, err, ErrConnectTimeout)
			require.ErrorContains(t, err, "context dev")
			require.Contains(t, clierr.Hint(err), "/readyz")
			require.Equal(t, waits, time.Since(began))
		}
	})
}
