package release

import (
	"fmt"

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
	case next.LessThan(version.MustParseSemantic(Oldest)):
		return Step{Refused: fmt.Sprintf("%s is older than %s, the oldest release that kcpctl supports", to, Oldest),
			Instead: "choose a newer release"}
	case next.LessThan(old):
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
