package ui

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLinesOfSeveralWritersAreNotTorn(t *testing.T) {
	const writers, lines = 8, 200
	var out bytes.Buffer
	shared := NewLines(&out)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			from := shared.From(fmt.Sprintf("[%d] ", w))
			for i := range lines {
				text := fmt.Sprintf("line %d of %d\n", i, w)
				for _, part := range []string{text[:3], text[3:7], text[7:]} {
					_, _ = from.Write([]byte(part))
				}
			}
		})
	}
	wg.Wait()
	next := map[int]int{}
	for line := range strings.Lines(out.String()) {
		var w, i, again int
		_, err := fmt.Sscanf(line, "[%d] line %d of %d\n", &w, &i, &again)
		require.NoError(t, err, line)
		require.Equal(t, w, again, line)
		require.Equal(t, next[w], i, "the lines of a writer keep their order")
		next[w]++
	}
	require.Len(t, next, writers)
}

func TestLastLineWithoutEnd(t *testing.T) {
	var out bytes.Buffer
	from := NewLines(&out).From("[a] ")
	n, err := from.Write([]byte("one\n\nlast"))
	require.NoError(t, err)
	require.Equal(t, 9, n)
	require.Equal(t, "[a] one\n[a] \n", out.String())
	require.NoError(t, from.Close())
	require.NoError(t, from.Close())
	require.Equal(t, "[a] one\n[a] \n[a] last\n", out.String())
}
