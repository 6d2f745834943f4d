package clierr

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// Parts of a hint that stand for the subjects of the errors that have it. So the errors that one command or flag
// resolves have the same hint, which is printed once.
const (
	IDs   = "{ids}"   // shard/alpha,shard/beta
	Names = "{names}" // alpha beta
)

// Problem is one of the things that are wrong, and its next step.
type Problem struct {
	// Subject is the component that the problem is about, if it is about one.
	Subject string `json:"component,omitempty"`
	Message string `json:"problem"`
	Hint    string `json:"hint,omitempty"`
}

// About returns an error about a subject, such as shard/alpha. Its hint may contain IDs and Names.
func About(subject string, code int, hint, format string, args ...any) *Error {
	e := New(code, hint, format, args...)
	e.Subject = subject
	return e
}

// Problems returns what is wrong, each with its next step: the errors that were joined with errors.Join, or the error.
func Problems(err error) []Problem {
	var out []Problem
	outer := oneLine(Outer(err))
	for _, part := range partsOf(err) {
		p := problemOf(part)
		p.Hint = cmp.Or(p.Hint, outer)
		p.Hint = expand(p.Hint, []string{p.Subject})
		out = append(out, p)
	}
	return out
}

// Group is problems with the same next step.
type Group struct {
	Problems []Problem
	// Hint is the next step of all of them.
	Hint string
}

// Subjects returns the names of the components that the problems are about.
func (g Group) Subjects() []string {
	var out []string
	for _, p := range g.Problems {
		if p.Subject != "" && !slices.Contains(out, p.Subject) {
			out = append(out, p.Subject)
		}
	}
	return out
}

// Line returns the next step in one line, with the subjects of several problems before it.
func (g Group) Line() string {
	if of := g.Subjects(); len(of) > 1 {
		return gather.Few(of, gather.Listed, ", ") + ": " + g.Hint
	}
	return g.Hint
}

// Groups returns the problems of an error by their next step, in the order of their first problems.
func Groups(err error) []Group {
	var out []Group
	for _, part := range partsOf(err) {
		p := problemOf(part)
		at := slices.IndexFunc(out, func(g Group) bool { return g.Hint == p.Hint })
		if at < 0 {
			at = len(out)
			out = append(out, Group{Hint: p.Hint})
		}
		out[at].Problems = append(out[at].Problems, p)
	}
	for i := range out {
		out[i].Hint = expand(out[i].Hint, out[i].Subjects())
	}
	return out
}

// Outer returns the next steps of the text around errors that were joined.
func Outer(err error) []string {
	if len(partsOf(err)) < 2 {
		return nil
	}
	own, _ := steps(err)
	return own
}

// partsOf returns the errors that were joined, or the error itself.
func partsOf(err error) []error {
	if err == nil {
		return nil
	}
	if _, parts := Split(err); len(parts) > 1 {
		return parts
	}
	return []error{err}
}

// Split separates errors that were joined with errors.Join from the text before them: "apply: a\nb" becomes "apply" and
// a, b. Any other error is its only part.
func Split(err error) (before string, parts []error) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		joined, ok := e.(interface{ Unwrap() []error })
		if !ok {
			continue
		}
		all := joined.Unwrap()
		text, found := strings.CutSuffix(err.Error(), e.Error())
		if !found || e.Error() != errors.Join(all...).Error() {
			break
		}
		for _, one := range all {
			within, more := Split(one)
			if own, _ := steps(one); within != "" || len(own) > 0 {
				more = []error{one}
			}
			parts = append(parts, more...)
		}
		return strings.TrimRight(text, ": "), parts
	}
	return "", []error{err}
}

// problemOf returns an error as a problem. Its hint is not expanded.
func problemOf(err error) Problem {
	p := Problem{Message: err.Error()}
	for e, ok := errors.AsType[*Error](err); ok && p.Subject == ""; e, ok = errors.AsType[*Error](e.Err) {
		p.Subject = e.Subject
	}
	own, joined := steps(err)
	p.Hint = oneLine(append(hintsOf(joined), own...))
	return p
}

// steps returns the next steps in the chain of an error: the step of the outermost error that has one, and after it the
// steps that Also has added. Without one, joined are the errors in which the chain ends.
func steps(err error) (hints []string, joined []error) {
	for ; err != nil; err = errors.Unwrap(err) {
		if e, ok := err.(*Error); ok && e.Hint != "" {
			hints = append([]string{e.Hint}, hints...)
			if !e.also {
				return hints, nil
			}
		}
		if all, ok := err.(interface{ Unwrap() []error }); ok {
			return hints, all.Unwrap()
		}
	}
	return hints, nil
}

// hintsOf returns the next steps of errors.
func hintsOf(all []error) []string {
	if len(all) == 1 {
		if h := problemOf(all[0]).Hint; h != "" {
			return []string{h}
		}
		return nil
	}
	var out []string
	for _, g := range Groups(errors.Join(all...)) {
		if g.Hint != "" {
			out = append(out, g.Line())
		}
	}
	return out
}

// EachHint replaces the hints of an error and of those that it wraps.
func EachHint(err error, replace func(string) string) {
	for ; err != nil; err = errors.Unwrap(err) {
		if e, ok := err.(*Error); ok && e.Hint != "" {
			e.Hint = replace(e.Hint)
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, part := range joined.Unwrap() {
				EachHint(part, replace)
			}
			return
		}
	}
}

// oneLine joins next steps.
func oneLine(hints []string) string {
	var out []string
	for i, h := range hints {
		if i < len(hints)-1 {
			h = strings.TrimSuffix(h, ".")
		}
		if !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return strings.Join(out, "; ")
}

// expand replaces the parts of a hint that stand for subjects.
func expand(hint string, subjects []string) string {
	var names []string
	for _, s := range subjects {
		names = append(names, s[strings.LastIndexByte(s, '/')+1:])
	}
	return strings.NewReplacer(IDs, strings.Join(subjects, ","), Names, strings.Join(names, " ")).Replace(hint)
}
