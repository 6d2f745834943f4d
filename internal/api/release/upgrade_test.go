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
			"mounts of workspaces get a client certificate",
		}},
		"loses a flag of a patch release": {
			from: "v0.31.6", to: "v0.32.2",
			gone:  []string{"--mount-proxy-client-cert-file", "--mount-proxy-client-key-file"},
			notes: []string{"kcp#4238", "v1.35.1 to v1.36.0"},
		},
		"keeps it":                  {from: "v0.31.6", to: "v0.32.3", notes: []string{"v1.35.1 to v1.36.0"}},
		"cache with certificates":   {from: "v0.30.1", to: "v0.30.2", notes: []string{"authenticates its clients"}},
		"downgrade":                 {from: "v0.32.3", to: "v0.32.2", refused: "v0.32.2 is older than v0.32.3"},
		"skipped minor":             {from: "v0.30.3", to: "v0.32.3", refused: "from v0.30.3 to v0.32.3 skips a minor release"},
		"skipped major":             {from: "v0.32.3", to: "v1.0.0", refused: "skips a minor release"},
		"a build of one's own":      {from: "v0.32.3", to: "v0.32.3-fips"},
		"and back":                  {from: "v0.32.3-fips", to: "v0.32.3"},
		"the next build":            {from: "v0.32.3-r9", to: "v0.32.3-r10"},
		"builds with hashes":        {from: "v0.32.3-abc12", to: "v0.32.3-0ff1c"},
		"an older build":            {from: "v0.32.3-r1", to: "v0.32.2-r2", refused: "v0.32.2-r2 is older than v0.32.3-r1"},
		"an earlier pre-release":    {from: "v0.32.3-rc.2", to: "v0.32.3-rc.1", refused: "v0.32.3-rc.1 is older"},
		"a pre-release, afterwards": {from: "v0.32.3", to: "v0.32.3-rc.1", refused: "v0.32.3-rc.1 is older than v0.32.3"},
		"a pre-release":             {from: "v0.32.2", to: "v0.32.3-rc.1", notes: []string{"mounts of workspaces get a"}},
		"from a pre-release":        {from: "v0.32.3-rc.1", to: "v0.32.3"},
		"a build of the oldest":     {from: Oldest, to: Oldest + "-fips"},
		"too old":                   {from: "v0.32.3", to: "v0.26.0", refused: "older than " + Oldest},
		"before the oldest":         {from: Oldest + "-rc.1", to: Oldest + "-rc.2", refused: "older than " + Oldest},
		"too new":                   {from: "v0.32.3", to: "v0.33.0", notes: []string{"each shard owns its Shard object", NewerNote("v0.33.0")}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := StepTo(tc.from, tc.to)
			require.NoError(t, err)
			require.Contains(t, s.Refused, tc.refused)
			require.Equal(t, tc.refused == "", s.Refused == "")
			require.Equal(t, tc.refused == "", s.Instead == "")
			if tc.refused != "" {
				return
			}
			require.Equal(t, tc.gone, s.Gone)
			require.Len(t, s.Notes, len(tc.notes))
			for i, fact := range tc.notes {
				require.Contains(t, s.Notes[i], fact)
			}
		})
	}
	step, err := StepTo("v0.30.3", "v0.32.3")
	require.NoError(t, err)
	require.Equal(t, []string{"--external-hostname", "--shard-external-url"}, step.Gone, "with --allow release-change")
	_, err = StepTo("v0.32.3", "latest")
	require.ErrorContains(t, err, `version "latest"`)
}
