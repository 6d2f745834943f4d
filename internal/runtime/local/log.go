package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/filelock"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
)

const (
	// maxLog is the size above which a log is rotated, in bytes.
	maxLog = 20 << 20
	// keptLog is how much of a log its rotation keeps, at the end of it, in units of the limit. Without --foreground, a
	// log can have any size.
	keptLog = 5
	// oldLogs is how many previous logs are kept: <component>.log.1 is the newest of them.
	oldLogs      = 4
	followPeriod = 200 * time.Millisecond
)

func (l *Layout) logFile(name string) string { return l.path(dirLogs, name+".log") }

func oldLog(path string, n int) string { return fmt.Sprintf("%s.%d", path, n) }

// openLog opens a new log for a process that starts. The current one becomes the previous one.
func (l *Layout) openLog(name string) (*os.File, error) {
	path := l.logFile(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, explain(err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err == nil {
		defer dir.Close()        // which ends the lock
		err = filelock.Lock(dir) // else another run that rotates this log would truncate the new one
	}
	if err != nil {
		return nil, explain(err)
	}
	if info, err := os.Stat(path); err == nil && info.Size() > 0 {
		if err := shiftLogs(path); err != nil {
			return nil, err
		}
		if err := os.Rename(path, oldLog(path, 1)); err != nil {
			return nil, explain(err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return f, explain(err)
}

// rotateLogs rotates the logs that are larger than the limit. Their processes keep them open and outlive kcpctl, so
// each log is copied and truncated; the processes append, so they continue at its start. It does nothing if another run
// is already rotating.
func (l *Layout) rotateLogs(limit int64) error {
	dir, err := os.Open(l.path(dirLogs))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close() // which ends the lock
	if filelock.Try(dir) != nil {
		return nil
	}
	paths, err := filepath.Glob(l.path(dirLogs, "*.log"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || info.Size() <= limit {
			continue
		}
		if err := rotateLog(path, info.Size()-keptLog*limit); err != nil {
			return err
		}
	}
	return nil
}

// rotateLog makes a copy of a log, from an offset on, the newest previous one, and truncates it. A full disk costs the
// oldest previous logs only, and any other failure none.
func rotateLog(path string, from int64) error {
	next := path + ".new"
	err := copyFile(path, next, from)
	for n := oldLogs; n > 0 && disk.IsFull(err); n-- {
		_ = os.Remove(oldLog(path, n))
		err = copyFile(path, next, from)
	}
	if err == nil {
		err = shiftLogs(path)
	}
	if err == nil {
		err = explain(os.Rename(next, oldLog(path, 1)))
	}
	if err != nil {
		return errors.Join(err, disk.RemoveState(next))
	}
	return explain(os.Truncate(path, 0))
}

// shiftLogs renames the previous logs, so that <component>.log.1 is unused.
func shiftLogs(path string) error {
	for n := oldLogs - 1; n > 0; n-- {
		if err := os.Rename(oldLog(path, n), oldLog(path, n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return explain(err)
		}
	}
	return nil
}

// copyFile copies a file from an offset on.
func copyFile(from, to string, offset int64) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := in.Seek(max(offset, 0), io.SeekStart); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return explain(err)
	}
	_, err = io.Copy(out, in)
	return explain(errors.Join(err, out.Close()))
}

func (l *Layout) removeLogs(name string) error {
	for n := 1; n <= oldLogs; n++ {
		if err := disk.RemoveState(oldLog(l.logFile(name), n)); err != nil {
			return err
		}
	}
	return errors.Join(disk.RemoveState(l.logFile(name)+".new"), disk.RemoveState(l.logFile(name)))
}

// Logs copies the log of a component's process. With Follow it also copies what is appended until ctx ends.
func (r *Runtime) Logs(ctx context.Context, c *topology.Component, o run.LogOptions, w io.Writer) error {
	path := r.layout.logFile(c.Object())
	if o.Previous {
		path = oldLog(path, 1)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && o.Previous {
		return clierr.New(clierr.Failed, "omit --previous", "%s: %w", c.ID(), run.ErrNoPrevious)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return clierr.New(clierr.Failed, "kcpctl status shows the components that are running",
			"%s has no log: %s", c.ID(), path)
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if o.Tail != nil {
		if err := seekTail(f, *o.Tail); err != nil {
			return err
		}
	}
	w, flush, err := r.timed(f, o, w)
	if err != nil {
		return err
	}
	return errors.Join(copyLog(ctx, f, o.Follow, w), flush())
}

// copyLog copies a log from where it is. With follow it also copies what is appended until ctx ends.
func copyLog(ctx context.Context, f *os.File, follow bool, w io.Writer) (err error) {
	defer func() { _ = f.Close() }()
	for {
		if _, err := io.Copy(w, f); err != nil || !follow {
			return err
		}
		if poll.Pause(ctx, followPeriod) != nil {
			return nil
		}
		if f, err = reopen(f, w); err != nil {
			return err
		}
	}
}

// reopen follows a log that was truncated, or replaced because its process was restarted. First it copies the rest of
// the previous log, which often has the reason.
func reopen(f *os.File, w io.Writer) (*os.File, error) {
	now, err := os.Stat(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	mine, errMine := f.Stat()
	at, errAt := f.Seek(0, io.SeekCurrent)
	if err := errors.Join(err, errMine, errAt); err != nil {
		return f, err
	}
	switch {
	case !os.SameFile(now, mine):
		next, err := os.Open(f.Name())
		if err != nil {
			return f, err
		}
		_, err = io.Copy(w, f)
		return next, errors.Join(err, f.Close())
	case now.Size() < at:
		if err := copyRest(w, oldLog(f.Name(), 1), at); err != nil {
			return f, err
		}
		_, err = f.Seek(0, io.SeekStart)
	}
	return f, err
}

// copyRest copies a file from an offset on.
func copyRest(w io.Writer, path string, from int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// seekTail seeks to the start of the last n lines.
func seekTail(f *os.File, n int64) error {
	const block = 32 << 10
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil || n <= 0 {
		return err
	}
	end := at
	for at > 0 {
		buf := make([]byte, min(block, at))
		at -= int64(len(buf))
		if _, err := f.ReadAt(buf, at); err != nil {
			return err
		}
		for i := len(buf) - 1; i >= 0; i-- {
			if buf[i] != '\n' || at+int64(i) == end-1 {
				continue
			}
			if n--; n == 0 {
				_, err = f.Seek(at+int64(i)+1, io.SeekStart)
				return err
			}
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

const (
	lastLines = 8
	// traceLines is the number of lines before the end in which a panic is searched for.
	traceLines = 400
	// lastBytes keeps reports of long lines short.
	lastBytes = 4 << 10
)

// lastLog returns the last lines of a process's log, or the lines of the panic if it ends with a stack trace.
func (l *Layout) lastLog(name string) []string {
	f, err := os.Open(l.logFile(name))
	if err != nil {
		return nil
	}
	defer f.Close()
	if err := seekTail(f, traceLines); err != nil {
		return nil
	}
	var tail bytes.Buffer
	if _, err := io.Copy(&tail, f); err != nil {
		return nil
	}
	text := strings.TrimSpace(tail.String())
	lines := strings.Split(text, "\n")
	if at := panicIn(lines); at >= 0 {
		text = strings.Join(lines[at:min(len(lines), at+lastLines)], "\n")
		text = text[:min(len(text), lastBytes)]
	} else {
		text = strings.Join(lines[max(0, len(lines)-lastLines):], "\n")
		text = text[max(0, len(text)-lastBytes):]
	}
	if text = strings.TrimSpace(strings.ToValidUTF8(text, "")); text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// panicIn returns the index of the message of a panic, if the lines end with its stack trace, and else -1.
func panicIn(lines []string) int {
	if !strings.HasPrefix(lines[len(lines)-1], "\t") {
		return -1
	}
	for at := len(lines) - 1; at >= 0; at-- {
		if strings.HasPrefix(lines[at], "panic: ") || strings.HasPrefix(lines[at], "fatal error: ") {
			return at
		}
	}
	return -1
}
