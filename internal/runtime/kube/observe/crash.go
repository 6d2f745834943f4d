package observe

import (
	"context"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/ready"
)

const (
	// readLogLines is how many lines of a crashed container's log are read. The line with the cause may be followed by
	// those that the container logged while it ended.
	readLogLines = 100
	// maxLog is how much of a log is read, in bytes.
	maxLog     = 64 << 10
	logTimeout = 3 * time.Second
)

// crashLogs are the last lines that crashed containers logged, by crash.
type crashLogs struct {
	mu    sync.Mutex
	lines map[ready.Crash][]string
}

// lastLines returns the last lines that a crashed container logged: none if they cannot be read.
func (l *crashLogs) lastLines(ctx context.Context, cl *cluster.Client, c ready.Crash) []string {
	l.mu.Lock()
	lines, ok := l.lines[c]
	l.mu.Unlock()
	if ok {
		return lines
	}
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	stream, err := cl.Stream(ctx, cl.PodPath(c.Pod, "log"), url.Values{
		"container": {c.Container}, "previous": {strconv.FormatBool(c.Previous)},
		"tailLines": {strconv.Itoa(readLogLines)},
	})
	if err != nil {
		return nil // the next call tries again
	}
	defer stream.Close()
	raw, err := io.ReadAll(io.LimitReader(stream, maxLog))
	if err != nil {
		return nil
	}
	lines = strings.Split(strings.TrimSpace(string(raw)), "\n")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = map[ready.Crash][]string{}
	}
	l.lines[c] = lines
	return lines
}
