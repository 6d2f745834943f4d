package release

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStepTo(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to, refused string
		gone              []string
		notes             []string
	}{
		"patch":   {from: "v0.32.0", to: "v0.32.2"},
		"nothing": {from: "v0.32.3", to: "v0.32.3"},
		"gains a flag": {from: "v0.32.2", to: "v0.32.3", notes: []string{
			"mounts of workspaces get a client certificate of their own",
		}},
		"loses a flag that a patch release brought": {
			from: "v0.31.6", to: "v0.32.2",
			gone: []string{"--mount-proxy-client-cert-file", "--mount-proxy-client-key-file"},
			notes: []string{
				"mounts of workspaces lose their client certificate (kcp#4238): it is back in v0.32.3",
				"the API server inside goes from Kubernetes v1.35.1 to v1.36.0",
			},
		},
		"keeps it": {from: "v0.31.6", to: "v0.32.3", notes: []string{"the API server inside goes from Kubernetes v1.35.1 to v1.36.0"}},
		"cache with certificates": {from: "v0.30.1", to: "v0.30.2", notes: []string{
			"the cache server asks its clients for certificates: shards that still run the former release lose the cache until it is their turn",
		}},
		"downgrade":     {from: "v0.32.3", to: "v0.32.2", refused: "v0.32.2 is older than v0.32.3, and kcp does not promise to read what a later release wrote"},
		"skipped minor": {from: "v0.30.3", to: "v0.32.3", refused: "from v0.30.3 to v0.32.3 skips a minor release"},
		"too old":       {from: "v0.32.3", to: "v0.26.0", refused: "kcpctl knows releases from v0.28.0 on"},
		"too new": {from: "v0.32.3", to: "v0.33.0", notes: []string{
			"this kcpctl was tested with kcp up to v0.32.3: v0.33.0 gets the flags of that",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := StepTo(tc.from, tc.to)
			require.NoError(t, err)
			require.Equal(t, tc.refused, s.Refused)
			require.Equal(t, tc.refused == "", s.Instead == "")
			if tc.refused != "" {
				return
			}
			require.Equal(t, tc.gone, s.Gone)
			require.Equal(t, tc.notes, s.Notes)
		})
	}
	step, err := StepTo("v0.30.3", "v0.32.3")
	require.NoError(t, err)
	require.Equal(t, []string{"--external-hostname", "--shard-external-url"}, step.Gone, "for those who do it all the same")
	_, err = StepTo("v0.32.3", "latest")
	require.ErrorContains(t, err, `version "latest"`)
}
