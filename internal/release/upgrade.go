package release

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// Step is what it means to go from one release to another.
type Step struct {
	// Refused is why kcp does not support the step, and Instead what to do. Both are empty where it does.
	Refused, Instead string
	// Gone are the flags that the new release does not know any more: it ends at once when it gets one of them.
	Gone []string
	// Notes are what else is worth knowing before.
	Notes []string
}

// change is a feature that is there or not, and what that means.
type change struct {
	has func(Features) bool
	// flags are those of the feature.
	flags      []string
	gone, come string
}

func changes() []change {
	return []change{
		{
			func(f Features) bool { return f.MountProxy },
			[]string{"--mount-proxy-client-cert-file", "--mount-proxy-client-key-file"},
			"mounts of workspaces lose their client certificate (kcp#4238): it is back in v0.32.3",
			"mounts of workspaces get a client certificate of their own",
		},
		{
			func(f Features) bool { return f.CacheClientCA }, nil,
			"the cache server does not ask its clients for certificates",
			"the cache server asks its clients for certificates: shards that still run the former release lose the cache until it is their turn",
		},
		{
			func(f Features) bool { return f.ExternalHostname }, []string{"--external-hostname"},
			"shards take their hostname from the base URL (kcp#3832)", "",
		},
		{
			func(f Features) bool { return f.VWShardExternalURL }, []string{"--shard-external-url"},
			"virtual workspace servers need no external URL of their shard", "",
		},
		{
			func(f Features) bool { return f.VWExternalAdmin }, []string{"--external-logical-cluster-admin-kubeconfig"},
			"virtual workspace servers cannot reach other shards' workspaces", "",
		},
	}
}

// StepTo tells what it means to upgrade from a release to another. Both are versions, as the setup file wants them.
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
	for _, c := range changes() {
		switch {
		case c.has(was) && !c.has(is):
			s.Gone = append(s.Gone, c.flags...)
			s.Notes = append(s.Notes, c.gone)
		case !c.has(was) && c.has(is) && c.come != "":
			s.Notes = append(s.Notes, c.come)
		}
	}
	if was.Kubernetes != is.Kubernetes {
		s.Notes = append(s.Notes, fmt.Sprintf("the API server inside goes from Kubernetes %s to %s", was.Kubernetes, is.Kubernetes))
	}
	if version.MustParseSemantic(Newest).LessThan(next) {
		s.Notes = append(s.Notes, fmt.Sprintf("this kcpctl was tested with kcp up to %s: %s gets the flags of that", Newest, to))
	}
	return s, nil
}

// refusal is a step with the reason why kcp does not support it, if so.
func refusal(from, to string, old, next *version.Version) Step {
	switch {
	case next.LessThan(version.MustParseSemantic(Oldest)):
		return Step{Refused: "kcpctl knows releases from " + Oldest + " on", Instead: "choose a later one"}
	case next.LessThan(old):
		return Step{
			Refused: fmt.Sprintf("%s is older than %s, and kcp does not promise to read what a later release wrote", to, from),
			Instead: "stay on " + from + " or later",
		}
	case next.Major() != old.Major() || next.Minor() > old.Minor()+1:
		return Step{
			Refused: fmt.Sprintf("from %s to %s skips a minor release", from, to),
			Instead: fmt.Sprintf("upgrade to the last v%d.%d first", old.Major(), old.Minor()+1),
		}
	}
	return Step{}
}
