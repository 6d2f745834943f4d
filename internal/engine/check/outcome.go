package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// ErrUnknown means that a runtime may not or cannot find out a fact that a check needs.
var ErrUnknown = errors.New("not known")

// outcome is the result of a check so far. The zero value means that the check passed.
type outcome struct {
	status Status
	causes []string
	// fix is what to do, if it is not the fix of the check's table entry.
	fix string
	// partial means that it failed only for some clusters, so that checks of the others make sense.
	partial bool
}

func skipped(format string, args ...any) outcome {
	return outcome{status: Skipped, causes: []string{fmt.Sprintf(format, args...)}}
}

// fromError returns the outcome of a check that ends with an error, or passes without one.
func fromError(err error) (o outcome) {
	o.add(err)
	return o
}

func (o *outcome) fail(format string, args ...any) { o.merge(Fail, fmt.Sprintf(format, args...)) }
func (o *outcome) warn(format string, args ...any) { o.merge(Warn, fmt.Sprintf(format, args...)) }

// severity orders the statuses.
func (s Status) severity() int { return slices.Index([]Status{"", OK, Skipped, Warn, Fail}, s) }

// merge adds a cause. The worst status wins; the reason for skipping is dropped if something is worse.
func (o *outcome) merge(s Status, cause string) {
	switch {
	case s == Skipped && o.status.severity() > Skipped.severity():
		return
	case o.status == Skipped && s.severity() > Skipped.severity():
		o.causes = nil
	}
	if s.severity() > o.status.severity() {
		o.status = s
	}
	if !slices.Contains(o.causes, cause) {
		o.causes = append(o.causes, cause)
	}
}

// add adds an error with its hint, and each error of a joined one. It ignores nil.
func (o *outcome) add(err error) {
	switch joined, ok := err.(interface{ Unwrap() []error }); {
	case err == nil:
	case ok && err.Error() == errors.Join(joined.Unwrap()...).Error():
		for _, e := range joined.Unwrap() {
			o.add(e)
		}
	case errors.Is(err, ErrUnknown):
		o.merge(Skipped, strings.TrimPrefix(err.Error(), ErrUnknown.Error()+": "))
	default:
		o.merge(Fail, err.Error())
		o.fix = cmp.Or(o.fix, clierr.Hint(err))
	}
}

// notExamined records components that a check has not looked at: it does not pass without them.
func (o *outcome) notExamined(why string, components []*topology.Component) {
	var names []string
	for _, c := range components {
		names = append(names, string(c.ID()))
	}
	if len(names) > 0 {
		o.merge(Skipped, fmt.Sprintf("not examined: %s (%s)", list(names), why))
	}
}

// absorb adds what was found in one of several places.
func (o *outcome) absorb(place string, other outcome) {
	for _, cause := range other.causes {
		if place != "" {
			cause = place + ": " + cause
		}
		o.merge(other.status, cause)
	}
	o.fix = cmp.Or(o.fix, other.fix)
}

// reason returns an error as a cause: the cause of the context's end if there is one.
func reason(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return context.Cause(ctx).Error()
	}
	return err.Error()
}

// list joins names for a sentence, at most a few of them.
func list(names []string) string {
	const most = 5
	return gather.Few(names, most, ", ")
}
