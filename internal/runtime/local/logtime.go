package local

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/kcpctl/kcpctl/internal/engine/run"
)

const (
	// timestampFormat is the format of the times that kubectl logs --timestamps prints.
	timestampFormat = "2006-01-02T15:04:05.000000000Z07:00"
	// lookAhead is how much of a log is searched for the first time in it, in bytes.
	lookAhead = 64 << 10
)

// logTimes finds the time of a line.
type logTimes struct {
	// klog is the header of klog: I1126 00:55:13.297103. It has no year, and the time zone of this machine.
	klog *regexp.Regexp
	// structured is the time in a line of JSON, as etcd and agents write it.
	structured *regexp.Regexp
	now        func() time.Time
}

func newLogTimes(now func() time.Time) *logTimes {
	return &logTimes{
		klog:       regexp.MustCompile(`^[IWEF](\d{4} \d\d:\d\d:\d\d\.\d{6}) `),
		structured: regexp.MustCompile(`^\{.*?"(?:ts|time)":"([^"]+)"`),
		now:        now,
	}
}

// of returns the time of a line. ok is false for a line without one, such as the next lines of a panic.
func (l *logTimes) of(line []byte) (at time.Time, ok bool) {
	if m := l.klog.FindSubmatch(line); m != nil {
		return l.ofKlog(string(m[1]))
	}
	if m := l.structured.FindSubmatch(line); m != nil {
		for _, format := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700"} {
			if at, err := time.Parse(format, string(m[1])); err == nil {
				return at, true
			}
		}
	}
	return time.Time{}, false
}

// ofKlog adds the year: the current one, or the one before if the time would be in the future.
func (l *logTimes) ofKlog(text string) (time.Time, bool) {
	now := l.now()
	for _, year := range []int{now.Year(), now.Year() - 1} {
		at, err := time.ParseInLocation("2006 0102 15:04:05.000000", strconv.Itoa(year)+" "+text, time.Local)
		if err == nil && !at.After(now.Add(24*time.Hour)) {
			return at, true
		}
	}
	return time.Time{}, false
}

// first returns the time of the first line of a log that has one, from where the file is on. A log without times has
// the time of its last change.
func (l *logTimes) first(f *os.File) (time.Time, error) {
	info, errInfo := f.Stat()
	at, errSeek := f.Seek(0, io.SeekCurrent)
	if err := errors.Join(errInfo, errSeek); err != nil {
		return time.Time{}, err
	}
	buf := make([]byte, lookAhead)
	n, err := f.ReadAt(buf, at)
	if err != nil && err != io.EOF {
		return time.Time{}, err
	}
	for line := range bytes.Lines(buf[:n]) {
		if at, ok := l.of(line); ok {
			return at, nil
		}
	}
	return info.ModTime(), nil
}

// timed returns a writer that omits the lines before a time, or adds the time of each line, as the options say. A
// line without a time has the time of the line before. flush writes a last line that does not end yet.
func (r *Runtime) timed(f *os.File, o run.LogOptions, w io.Writer) (_ io.Writer, flush func() error, _ error) {
	if o.Since == 0 && o.SinceTime.IsZero() && !o.Timestamps {
		return w, func() error { return nil }, nil
	}
	times := newLogTimes(r.options.Now)
	at, err := times.first(f)
	if err != nil {
		return nil, nil, err
	}
	out := &timedWriter{times: times, at: at, since: o.SinceTime, timestamps: o.Timestamps, out: w}
	if o.Since > 0 {
		out.since = r.options.Now().Add(-o.Since)
	}
	return out, out.flush, nil
}

// timedWriter writes the lines of a log that are not too old.
type timedWriter struct {
	times *logTimes
	// at is the time of the last line that has one.
	at, since  time.Time
	timestamps bool
	// rest is the begin of a line whose end was not written yet.
	rest []byte
	out  io.Writer
}

func (t *timedWriter) Write(p []byte) (int, error) {
	t.rest = append(t.rest, p...)
	for {
		end := bytes.IndexByte(t.rest, '\n') + 1
		if end == 0 {
			return len(p), nil
		}
		if err := t.line(t.rest[:end]); err != nil {
			return 0, err
		}
		t.rest = t.rest[end:]
	}
}

func (t *timedWriter) flush() error {
	if len(t.rest) == 0 {
		return nil
	}
	return t.line(t.rest)
}

func (t *timedWriter) line(line []byte) error {
	if at, ok := t.times.of(line); ok {
		t.at = at
	}
	if t.at.Before(t.since) {
		return nil
	}
	if t.timestamps {
		line = append([]byte(t.at.UTC().Format(timestampFormat)+" "), line...)
	}
	_, err := t.out.Write(line)
	return err
}
