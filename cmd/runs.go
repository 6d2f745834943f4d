package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/record"
)

// silence is how long a run may not renew its lock before it is doubted: the duration of the Lease.
const silence = 15 * time.Second

// inProgress describes the run that holds the lock: in progress: kcpctl up by root (pid 6461, since 22:40:02).
func inProgress(r *record.Run, now time.Time) string {
	text := "in progress: " + cmp.Or(r.Command, "kcpctl")
	if r.User != "" {
		text += " by " + r.User
	}
	if r.Host != "" {
		text += " on " + r.Host
	}
	details := []string{fmt.Sprintf("pid %d", r.PID)}
	if !r.Since.IsZero() {
		since, layout := r.Since.In(now.Location()), time.TimeOnly
		if since.Format(time.DateOnly) != now.Format(time.DateOnly) {
			layout = time.DateTime
		}
		details = append(details, "since "+since.Format(layout))
	}
	if age := now.Sub(r.Renewed); !r.Renewed.IsZero() && age > silence {
		details = append(details, "which has not renewed its lock for "+ui.Age(age))
	}
	return text + " (" + strings.Join(details, ", ") + ")"
}

// lastRun describes a run that has not finished: last run: up, failed 3m ago: shard/alpha: not ready.
func lastRun(r *record.Run, now time.Time) string {
	text := "last run: "
	if r.Command != "" {
		text += strings.TrimPrefix(r.Command, "kcpctl ") + ", "
	}
	text += string(r.Result)
	switch {
	case !r.Ended.IsZero():
		text += " " + ui.Age(now.Sub(r.Ended)) + " ago"
	case !r.Since.IsZero():
		text += "; it began " + ui.Age(now.Sub(r.Since)) + " ago"
	}
	if r.Error != "" {
		text += ": " + r.Error
	}
	return text
}

// noteRuns mentions the run in progress, or the last one if it has not finished, in a command that shows something
// else.
func (s *session) noteRuns(ctx context.Context) {
	current, unfinished, err := s.runtime.Runs(ctx)
	switch now := s.env.Now(); {
	case err != nil: // the command says itself what it cannot read
	case current != nil:
		s.reporter.note(inProgress(current, now))
	case unfinished != nil:
		s.reporter.note(lastRun(unfinished, now))
	}
}
