package local

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/engine/run"
)

func TestTimeOfALine(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	times := newLogTimes(func() time.Time { return now })
	for line, want := range map[string]time.Time{
		"I0101 00:55:13.297103   30170 kcp.go:135] up":                time.Date(2026, 1, 1, 0, 55, 13, 297103000, time.Local),
		"F1231 23:59:59.000001   30170 kcp.go:135] of the last year":  time.Date(2025, 12, 31, 23, 59, 59, 1000, time.Local),
		`{"level":"warn","ts":"2026-01-01T10:00:00.5Z","msg":"slow"}`: time.Date(2026, 1, 1, 10, 0, 0, 5e8, time.UTC),
		`{"level":"info","time":"2026-01-01T10:00:00.500+0100"}`:      time.Date(2026, 1, 1, 9, 0, 0, 5e8, time.UTC),
		`{"level":"info","ts":"yesterday"}`:                           {},
		"goroutine 1 [running]:":                                      {},
		"I9999 99:99:99.000000 no time":                               {},
	} {
		at, ok := times.of([]byte(line))
		require.Equal(t, !want.IsZero(), ok, line)
		require.True(t, want.Equal(at), "%s: %s", line, at)
	}
}

func TestLogsOfATime(t *testing.T) {
	at := time.Date(2026, 5, 6, 12, 0, 0, 0, time.Local)
	klog := func(at time.Time, text string) string {
		return fmt.Sprintf("I%s   1 kcp.go:1] %s\n", at.Format("0102 15:04:05.000000"), text)
	}
	stamp := func(at time.Time) string { return at.UTC().Format(timestampFormat) + " " }
	early, late, open := klog(at, "early"), klog(at.Add(time.Minute), "late"), "  a stack"
	log := "usage\n" + early + "  more\n" + late + open
	for name, tc := range map[string]struct {
		o    run.LogOptions
		want string
	}{
		"since":            {run.LogOptions{Since: time.Minute}, late + open},
		"since a time":     {run.LogOptions{SinceTime: at.Add(time.Second)}, late + open},
		"since the start":  {run.LogOptions{SinceTime: at}, log},
		"of the last line": {run.LogOptions{Tail: new(int64(3)), Since: time.Hour}, "  more\n" + late + open},
		"timestamps": {run.LogOptions{Timestamps: true}, stamp(at) + "usage\n" + stamp(at) + early + stamp(at) + "  more\n" +
			stamp(at.Add(time.Minute)) + late + stamp(at.Add(time.Minute)) + open},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := logRuntime(t)
			r.options.Now = func() time.Time { return at.Add(90 * time.Second) }
			writeLog(t, r.layout, log)
			var out bytes.Buffer
			require.NoError(t, r.Logs(t.Context(), c, tc.o, &out))
			require.Equal(t, tc.want, out.String())
		})
	}
}
