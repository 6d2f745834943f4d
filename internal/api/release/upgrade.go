package release

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Step is an upgrade from one release to another.
type Step struct {
	// Refused is why kcp does not support the upgrade, and Instead what to do. Both are empty if it is supported.
	Refused, Instead string
	// Gone are the flags that the new release no longer accepts: a server that gets one of them exits at once.
	Gone []string
	// Notes are what else changes.
	Notes []string
}

// StepTo describes the upgrade from one release to another. It fails if one of them is not a version such as v0.32.3.
func StepTo(from, to string) (Step, error) {
	old, err := version.ParseSemantic(from)
	if err != nil {
		return Step{}, fmt.Errorf("version %q: %w", from, err)
	}
	next, err := version.ParseSemantic(to)
	if err != nil {
		return Step{}, fmt.Errorf("version %q: %w", to, err)
	}
	s := refusal(from, to, old, next)
	was, is := Of(from), Of(to)
	for _, f := range features {
		switch had, has := *f.enabled(&was), *f.enabled(&is); {
		case had && !has:
			s.Gone = append(s.Gone, f.flags...)
			if f.lost != "" {
				s.Notes = append(s.Notes, f.lost)
			}
		case !had && has && f.gained != "":
			s.Notes = append(s.Notes, f.gained)
		}
	}
	if was.Kubernetes != is.Kubernetes {
		s.Notes = append(s.Notes,
			fmt.Sprintf("the API server library changes from Kubernetes %s to %s", was.Kubernetes, is.Kubernetes))
	}
	if note := NewerNote(to); note != "" {
		s.Notes = append(s.Notes, note)
	}
	return s, nil
}

// refusal returns a step with the reason why it is not supported, or an empty one.
func refusal(from, to string, old, next *version.Version) Step {
	switch {
	case Older(to, Oldest):
		return Step{Refused: fmt.Sprintf("%s is older than %s, the oldest release that kcpctl supports", to, Oldest),
			Instead: "choose a newer release"}
	case older(next, old):
		return Step{
			Refused: fmt.Sprintf("%s is older than %s, and kcp may not be able to read data of a newer release", to,
				from),
			Instead: "stay on " + from + " or a newer release",
		}
	case next.Major() != old.Major() || next.Minor() > old.Minor()+1:
		return Step{
			Refused: fmt.Sprintf("from %s to %s skips a minor release", from, to),
			Instead: fmt.Sprintf("upgrade to the last v%d.%d first", old.Major(), old.Minor()+1),
		}
	}
	return Step{}
}

// Older reports whether a release is older than another one of the same program, such as kcp or etcd. It is not if one
// of them is not a version.
func Older(v, than string) bool {
	next, err := version.ParseSemantic(v)
	old, errOld := version.ParseSemantic(than)
	return err == nil && errOld == nil && older(next, old)
}

// older compares versions. What follows a hyphen is an order only if it names a pre-release: in builds of users, such
// as v0.32.3-fips, it is a name, or a number that is compared as a text.
func older(v, than *version.Version) bool {
	switch next, old := coreOf(v), coreOf(than); {
	case next.LessThan(old):
		return true
	case old.LessThan(next) || !isPreRelease(v):
		return false
	}
	return !isPreRelease(than) || v.LessThan(than)
}

// isPreRelease reports whether a version names a pre-release: -alpha, -beta or -rc.
func isPreRelease(v *version.Version) bool {
	return slices.ContainsFunc([]string{"alpha", "beta", "rc"}, func(name string) bool {
		return strings.HasPrefix(v.PreRelease(), name)
	})
}
