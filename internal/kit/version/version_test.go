package version

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestInfo(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	settings := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.time", Value: "2026-11-20T17:45:12Z"}, {Key: "vcs.modified", Value: "true"},
	}
	for name, tc := range map[string]struct {
		linked string
		build  *debug.BuildInfo
		want   Info
	}{
		"nothing known": {want: Info{Version: "devel"}},
		"go install": {
			build: &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}},
			want:  Info{Version: "v0.1.0"},
		},
		"go build of a changed checkout": {
			build: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings},
			want:  Info{Version: "devel", Commit: "0123abc-dirty", Date: "2026-11-20T17:45:12Z"},
		},
		"the linker wins": {
			linked: "v0.2.0",
			build:  &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}},
			want:   Info{Version: "v0.2.0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			version = tc.linked
			t.Cleanup(func() { version = "" })
			tc.want.Go, tc.want.Platform = runtime.Version(), platform
			require.Empty(t, cmp.Diff(tc.want, info(tc.build)))
		})
	}
}

func TestGet(t *testing.T) {
	got := Get()
	require.NotEmpty(t, got.Version)
	require.Equal(t, runtime.Version(), got.Go)
}

func TestText(t *testing.T) {
	i := Info{Version: "v0.1.0", Commit: "0123abc", Go: "go1.26.8", Platform: "linux/amd64", KCP: "v0.32.3", KnownKCP: []string{"v0.32.2", "v0.32.3"}}
	require.Equal(t, `kcpctl    v0.1.0
commit    0123abc
go        go1.26.8
platform  linux/amd64
kcp       v0.32.3 (supports v0.32.2, v0.32.3)
`, i.Text())
	i.Image = "ghcr.io/kcpctl/kcpctl:v0.1.0"
	require.Contains(t, i.Text(), "\nimage     "+i.Image+" (this build does not know its digest)\n")
	i.ImageDigest = "sha256:0123"
	i.Image += "@" + i.ImageDigest
	require.Contains(t, i.Text(), "image     ghcr.io/kcpctl/kcpctl:v0.1.0@sha256:0123\n")
}

func TestJSONRoundTrips(t *testing.T) {
	want := Info{Version: "v0.1.0", Go: "go1.26.8", Platform: "linux/amd64", KCP: "v0.32.3", Etcd: "v3.6.5"}
	out, err := json.Marshal(want)
	require.NoError(t, err)
	var got Info
	require.NoError(t, json.Unmarshal(out, &got))
	require.Empty(t, cmp.Diff(want, got))
	require.NotContains(t, string(out), "commit")
}
