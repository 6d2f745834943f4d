package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/filelock"
)

func logRuntime(t *testing.T) (*Runtime, *topology.Component) {
	l := &Layout{Setup: "demo", Dir: t.TempDir()}
	return New(nil, l, Options{}), &topology.Component{Kind: topology.RootShard, Setup: "demo"}
}

func writeLog(t *testing.T, l *Layout, text string) {
	t.Helper()
	f, err := l.openLog("demo-root")
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestLogs(t *testing.T) {
	var long strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&long, "line %d\n", i)
	}
	for name, tc := range map[string]struct {
		log  string
		o    run.LogOptions
		want string
	}{
		"all":               {log: "a\nb\nc\n", want: "a\nb\nc\n"},
		"tail":              {log: "a\nb\nc\n", o: run.LogOptions{Tail: new(int64(2))}, want: "b\nc\n"},
		"open last line":    {log: "a\nb\nc", o: run.LogOptions{Tail: new(int64(2))}, want: "b\nc"},
		"fewer lines":       {log: "a\nb\n", o: run.LogOptions{Tail: new(int64(5))}, want: "a\nb\n"},
		"across the blocks": {log: long.String(), o: run.LogOptions{Tail: new(int64(5000))}, want: long.String()[strings.Index(long.String(), "line 5000\n"):]},
		"previous":          {log: "new", o: run.LogOptions{Previous: true}, want: "old"},
		"no line":           {log: "a\nb\n", o: run.LogOptions{Tail: new(int64(0))}, want: ""},
		"empty":             {log: "", o: run.LogOptions{Tail: new(int64(3))}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := logRuntime(t)
			writeLog(t, r.layout, "old")
			writeLog(t, r.layout, tc.log)
			var out bytes.Buffer
			require.NoError(t, r.Logs(t.Context(), c, tc.o, &out))
			require.Equal(t, tc.want, out.String())
		})
	}
}

func TestLogsOfNothing(t *testing.T) {
	r, c := logRuntime(t)
	require.ErrorContains(t, r.Logs(t.Context(), c, run.LogOptions{}, &bytes.Buffer{}), "root-shard has no log")
	writeLog(t, r.layout, "the first")
	err := r.Logs(t.Context(), c, run.LogOptions{Previous: true}, &bytes.Buffer{})
	require.ErrorIs(t, err, run.ErrNoPrevious)
	require.EqualError(t, err, "root-shard: it has no previous log, because it was not restarted")
}

// buffer can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestFollowSurvivesRotationAndRestart(t *testing.T) {
	r, c := logRuntime(t)
	process, err := r.layout.openLog("demo-root")
	require.NoError(t, err)
	defer process.Close()
	out, ended := &buffer{}, make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- r.Logs(ctx, c, run.LogOptions{Follow: true}, out) }()
	write := func(text, want string) {
		_, err := process.WriteString(text)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return out.String() == want }, patience, pollInterval)
	}
	write("a long first line\n", "a long first line\n")
	require.NoError(t, r.layout.rotateLogs(3))
	require.Eventually(t, func() bool { info, err := process.Stat(); return err == nil && info.Size() == 0 }, patience, pollInterval)
	write("2\n", "a long first line\n2\n")
	process, err = r.layout.openLog("demo-root") // a new process
	require.NoError(t, err)
	defer process.Close()
	write("3\n", "a long first line\n2\n3\n")
	cancel()
	require.NoError(t, <-ended)
}

// The last lines of a process are not lost, whatever happens to its log before it is read again.
func TestReopenReadsTheRest(t *testing.T) {
	for name, tc := range map[string]struct {
		happen func(t *testing.T, l *Layout)
		want   string
	}{
		"the process was restarted": {func(t *testing.T, l *Layout) { writeLog(t, l, "new\n") }, "bye\nnew\n"},
		"the log was rotated":       {func(t *testing.T, l *Layout) { require.NoError(t, l.rotateLogs(3)) }, "bye\n"},
		"nothing":                   {func(*testing.T, *Layout) {}, "bye\n"},
		"it was removed":            {func(t *testing.T, l *Layout) { require.NoError(t, l.removeLogs("demo-root")) }, "bye\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := logRuntime(t)
			writeLog(t, r.layout, "hello\nbye\n")
			f, err := os.Open(r.layout.logFile("demo-root"))
			require.NoError(t, err)
			_, err = f.Seek(int64(len("hello\n")), io.SeekStart)
			require.NoError(t, err)
			tc.happen(t, r.layout)
			var out bytes.Buffer
			f, err = reopen(f, &out)
			require.NoError(t, err)
			_, err = io.Copy(&out, f)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			require.Equal(t, tc.want, out.String())
		})
	}
}

func TestRotationKeepsAFewLogs(t *testing.T) {
	r, _ := logRuntime(t)
	for i := range oldLogs + 3 {
		writeLog(t, r.layout, fmt.Sprint(i))
	}
	path := r.layout.logFile("demo-root")
	files, err := os.ReadDir(r.layout.path(dirLogs))
	require.NoError(t, err)
	require.Len(t, files, oldLogs+1)
	newest, err := os.ReadFile(oldLog(path, 1))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(oldLogs+1), string(newest))
	require.NoError(t, r.layout.removeLogs("demo-root"))
	files, err = os.ReadDir(r.layout.path(dirLogs))
	require.NoError(t, err)
	require.Empty(t, files)
}

// Another run that is copying a log would then truncate the new one.
func TestANewLogWaitsForARotation(t *testing.T) {
	r, _ := logRuntime(t)
	writeLog(t, r.layout, "first")
	rotating, err := filelock.Open(r.layout.path(dirLogs), os.O_RDONLY, 0)
	require.NoError(t, err)
	opened := make(chan error)
	go func() {
		f, err := r.layout.openLog("demo-root")
		opened <- errors.Join(err, f.Close())
	}()
	select {
	case err := <-opened:
		require.Fail(t, "it did not wait", err)
	case <-time.After(10 * pollInterval):
	}
	require.NoFileExists(t, oldLog(r.layout.logFile("demo-root"), 1))
	require.NoError(t, rotating.Close())
	require.NoError(t, <-opened)
	require.FileExists(t, oldLog(r.layout.logFile("demo-root"), 1))
}

// A log that no command has rotated for a long time is not copied as a whole.
func TestRotationKeepsTheEndOfALongLog(t *testing.T) {
	r, _ := logRuntime(t)
	writeLog(t, r.layout, strings.Repeat("a", 1000)+"the end")
	require.NoError(t, r.layout.rotateLogs(2))
	kept, err := os.ReadFile(oldLog(r.layout.logFile("demo-root"), 1))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("a", 2*keptLog-len("the end"))+"the end", string(kept))
}

// A rotation that fails loses nothing.
func TestRotationThatFails(t *testing.T) {
	r, _ := logRuntime(t)
	for i := range oldLogs + 1 {
		writeLog(t, r.layout, fmt.Sprint("log ", i))
	}
	path := r.layout.logFile("demo-root")
	require.NoError(t, os.MkdirAll(path+".new/x", 0o700)) // where the copy would be
	require.Error(t, r.layout.rotateLogs(1))
	for n := 1; n <= oldLogs; n++ {
		old, err := os.ReadFile(oldLog(path, n))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("log ", oldLogs-n), string(old))
	}
	current, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint("log ", oldLogs), string(current))
	require.NoError(t, os.RemoveAll(path+".new"))
	require.NoError(t, r.layout.rotateLogs(1))
	newest, err := os.ReadFile(oldLog(path, 1))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint("log ", oldLogs), string(newest))
	require.NoFileExists(t, path+".new")
}

// The message of a panic is above its stack trace, which is longer than what is shown of a log.
func TestLastLogOfAPanic(t *testing.T) {
	l := &Layout{Dir: t.TempDir()}
	require.NoError(t, os.MkdirAll(filepath.Dir(l.logFile("a")), 0o700))
	trace := strings.Repeat("main.f(...)\n\tmain.go:1 +0x1\n", 20)
	const full = "panic: no space left on device"
	for text, first := range map[string]string{
		"I1 starts\n" + full + "\n\ngoroutine 1 [running]:\n" + trace: full,
		full + "\n" + trace + "I2 starts again\n":                     "main.go:1 +0x1",
		"I1 starts\n": "I1 starts",
	} {
		require.NoError(t, os.WriteFile(l.logFile("a"), []byte(text), 0o600))
		lines := l.lastLog("a")
		require.LessOrEqual(t, len(lines), lastLines)
		require.Equal(t, first, lines[0])
	}
	require.NoError(t, os.WriteFile(l.logFile("a"), nil, 0o600))
	require.Empty(t, l.lastLog("a"))
}
