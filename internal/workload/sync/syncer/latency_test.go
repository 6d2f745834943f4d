package syncer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLatency(t *testing.T) {
	l, i, start := newLatency(), item{}, time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	l.saw(Down, i, at(0))
	l.saw(Down, i, at(1))
	l.begin(i) // fails
	l.saw(Down, i, at(2))
	l.begin(i)
	l.saw(Down, i, at(3))
	require.Equal(t, 5*time.Second, l.wrote(Down, i, at(5)), "since the first change")
	require.Zero(t, l.wrote(Up, i, at(5)))
	l.done(i)
	l.begin(i)
	require.Equal(t, 3*time.Second, l.wrote(Down, i, at(6)), "the change that came in the meantime")
	l.saw(Up, i, at(7))
	l.begin(i)
	l.done(i)
	require.Empty(t, l.waiting)
	require.Empty(t, l.working)
}
