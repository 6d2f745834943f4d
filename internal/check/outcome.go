package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// ErrUnknown says that a runtime may not or cannot find out what a check asks for.
var ErrUnknown = errors.New("not known")

// outcome is what a check has found so far. The zero value is that all is well.
type outcome struct {
	status Status
	causes []string
	// fix is what to do, if that is not what the check always says.
	fix string
}

func skipped(format string, args ...any) outcome {
	return outcome{status: Skipped, causes: []string{fmt.Sprintf(format, args...)}}
}

func (o *outcome) fail(format string, args ...any) { o.merge(Fail, fmt.Sprintf(format, args...)) }
func (o *outcome) warn(format string, args ...any) { o.merge(Warn, fmt.Sprintf(format, args...)) }

// severity orders the statuses.
func (s Status) severity() int { return slices.Index([]Status{"", OK, Skipped, Warn, Fail}, s) }

// merge adds a cause. The worst status wins; why something was skipped is only told if nothing is worse.
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

// add adds an error, which says itself what to do about it: nothing if it is nil.
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

// absorb adds what has been found in one of several places.
func (o *outcome) absorb(place string, other outcome) {
	for _, cause := range other.causes {
		if place != "" {
			cause = place + ": " + cause
		}
		o.merge(other.status, cause)
	}
	o.fix = cmp.Or(o.fix, other.fix)
}

// join is errors.Join that leaves a single error as it is.
func join(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// reason is an error as a cause: the cause of the context's end if that is what it comes from.
func reason(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return context.Cause(ctx).Error()
	}
	return err.Error()
}

// list is some names in a sentence, at most a few of them.
func list(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
