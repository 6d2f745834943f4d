package setup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/version"
)

// The digest that a release knows is that of its own image: what a user chooses does not get it.
func TestKcpctlImage(t *testing.T) {
	const digest, own = "@sha256:0123", "@sha256:4567"
	build := version.Info{Version: "v0.1.0-3-gabc+dirty"}
	release := version.Info{Version: "v0.1.0", ImageDigest: digest[1:]}
	for name, tc := range map[string]struct {
		build version.Info
		image v1alpha1.Image
		want  string
	}{
		"between two releases":     {build, v1alpha1.Image{}, "ghcr.io/kcpctl/kcpctl:v0.1.0-3-gabc-dirty"},
		"a release":                {release, v1alpha1.Image{}, "ghcr.io/kcpctl/kcpctl:v0.1.0" + digest},
		"another repository":       {release, v1alpha1.Image{Repository: "mirror/kcpctl"}, "mirror/kcpctl:v0.1.0"},
		"another tag":              {release, v1alpha1.Image{Tag: "v1"}, "ghcr.io/kcpctl/kcpctl:v1"},
		"another digest":           {release, v1alpha1.Image{Digest: own[1:]}, "ghcr.io/kcpctl/kcpctl" + own},
		"another digest, with tag": {release, v1alpha1.Image{Tag: "v1", Digest: own[1:]}, "ghcr.io/kcpctl/kcpctl:v1" + own},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1alpha1.Spec{Workloads: &v1alpha1.Workloads{Image: tc.image}}
			require.Equal(t, tc.want, topology.KcpctlRef(kcpctlImage(spec, tc.build)))
		})
	}
}

// Releases of kcpctl have other numbers than those of kcp, which has no v0.1.0 that is supported.
func TestWorkloadsWithAReleaseOfKcpctl(t *testing.T) {
	s := parse(t, minimal+"spec: {workloads: {image: {repository: mirror.example.com/kcpctl, tag: v0.1.0}}}\n")
	require.Equal(t, "mirror.example.com/kcpctl:v0.1.0", topology.KcpctlRef(KcpctlImage(&s.Spec)))
	_, err := Parse("kcp.yaml", []byte(minimal+"spec: {workloads: {image: {tag: no spaces}}}\n"))
	require.ErrorContains(t, err, "spec.workloads.image.tag: invalid value \"no spaces\": must be an image tag")
	_, err = Parse("kcp.yaml", []byte(minimal+"spec: {workloads: {image: {repository: 'mirror.example.com/kcpctl:v0.1.0'}}}\n"))
	require.ErrorContains(t, err, "spec.workloads.image.repository: invalid value")
}

func TestWithName(t *testing.T) {
	release := v1alpha1.Image{Repository: "ghcr.io/kcpctl/kcpctl", Tag: "v0.1.0", Digest: "sha256:0123"}
	for name, want := range map[string]string{
		"mirror:5000/kcpctl":                "mirror:5000/kcpctl:latest",
		"mirror:5000/kcpctl:v1":             "mirror:5000/kcpctl:v1",
		"mirror:5000/kcpctl@sha256:4567":    "mirror:5000/kcpctl@sha256:4567",
		"mirror:5000/kcpctl:v1@sha256:4567": "mirror:5000/kcpctl:v1@sha256:4567",
	} {
		require.Equal(t, want, topology.KcpctlRef(WithName(release, name)), name)
	}
}
