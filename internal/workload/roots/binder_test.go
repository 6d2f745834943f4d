package roots

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kcp is asked less and less often to apply the claims of a binding, each binding for itself.
func TestDelaysOfBindings(t *testing.T) {
	b, now := newBinder(), time.Now()
	one, other := binding{"1a", "cluster-c1"}, binding{"1a", "cluster-c2"}
	require.Equal(t, firstBind, b.due(one, now), "it was written a moment ago")
	var asked []time.Duration
	for at := now; at.Before(now.Add(5 * time.Minute)); at = at.Add(time.Second) {
		if b.due(one, at) == 0 {
			asked = append(asked, at.Sub(now))
		}
	}
	s := time.Second
	require.Equal(t, []time.Duration{s, 3 * s, 7 * s, 15 * s, 31 * s, 63 * s, 123 * s, 183 * s, 243 * s}, asked)
	require.Equal(t, firstBind, b.due(other, now))
	b.settled(one)
	require.Equal(t, firstBind, b.due(one, now), "the next time begins with the first delay")
	b.forget("1a")
	require.Empty(t, b.next)
}
