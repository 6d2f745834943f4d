package release

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// OldestAgent is the oldest supported release of the api-syncagent. Earlier ones have other flags and need other
// permissions.
const OldestAgent = "v0.7.0"

// NewestAgent is the newest release of the api-syncagent that kcpctl was tested with.
const NewestAgent = "v0.7.0"

// agents are the releases of the api-syncagent for a setup that does not specify one, by the kcp release from which
// each is used, oldest first. They use apis.kcp.io/v1alpha2, which kcp has from v0.28.0.
var agents = []struct {
	from    *version.Version
	release string
}{
	{version.MustParseSemantic("v0.28.0"), "v0.7.0"},
}

// Agent returns the release of the api-syncagent for a kcp release. For anything that is not a version, it is the
// release for Newest.
func Agent(kcp string) string {
	want, err := core(kcp)
	if err != nil {
		want = version.MustParseSemantic(Newest)
	}
	out := agents[0].release
	for _, a := range agents {
		if want.AtLeast(a.from) {
			out = a.release
		}
	}
	return out
}

// CheckAgent returns the reason why a release of the api-syncagent is not supported, or "".
func CheckAgent(v string) string {
	switch _, err := version.ParseSemantic(v); {
	case err != nil || !strings.HasPrefix(v, "v"):
		return "must be a release of the api-syncagent such as " + NewestAgent
	case Older(v, OldestAgent):
		return "the oldest supported release is " + OldestAgent
	}
	return ""
}

// NewerAgentNote is a note about an api-syncagent that is newer than NewestAgent. It is empty for all others.
func NewerAgentNote(v string) string {
	p, err := version.ParseSemantic(v)
	if err != nil || !version.MustParseSemantic(NewestAgent).LessThan(p) {
		return ""
	}
	return fmt.Sprintf("api-syncagent %s is newer than %s, the newest release that this kcpctl was tested with", v,
		NewestAgent)
}
