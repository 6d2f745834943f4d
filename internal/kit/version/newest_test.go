package version

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewest(t *testing.T) {
	var to string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/releases/latest", r.URL.Path)
		require.Equal(t, "kcpctl", r.UserAgent())
		if to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	}))
	t.Cleanup(server.Close)
	releases := server.URL + "/releases"

	to = "/kcpctl/kcpctl/releases/tag/v0.2.0"
	newest, err := Newest(t.Context(), releases)
	require.NoError(t, err)
	require.Equal(t, "v0.2.0", newest)

	to = "/kcpctl/kcpctl/releases" // GitHub, without a release
	_, err = Newest(t.Context(), releases)
	require.ErrorContains(t, err, "has no release")
	to = ""
	_, err = Newest(t.Context(), releases)
	require.ErrorContains(t, err, "has no release: 200 OK")

	server.Close()
	_, err = Newest(t.Context(), releases)
	require.ErrorContains(t, err, "connection refused")
}

func TestIsOlder(t *testing.T) {
	for _, tc := range []struct {
		own, newest  string
		older, known bool
	}{
		{"v0.1.0", "v0.2.0", true, true},
		{"v0.2.0", "v0.2.0", false, true},
		{"v0.2.0-rc.1", "v0.2.0", true, true},
		{"v0.3.0", "v0.2.0", false, true},
		{"devel", "v0.2.0", false, false},
		{"0123abc-dirty", "v0.2.0", false, false},
		{"v0.1.0-3-g0123abc", "v0.1.0", false, false},
		{"v0.1.0-dirty", "v0.2.0", false, false},
		{"v0.1.0+dirty", "v0.2.0", false, false},
		{"v0.1.1-0.20261120174512-0123abcdef01", "v0.2.0", false, false},
	} {
		older, known := Info{Version: tc.own}.IsOlder(tc.newest)
		require.Equal(t, []bool{tc.older, tc.known}, []bool{older, known}, "%s of %s", tc.own, tc.newest)
	}
}
