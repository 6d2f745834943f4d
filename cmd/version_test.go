package cmd

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/version"
)

// releasePage is a page of releases, of which v0.2.0 is the newest.
func releasePage(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/tag/v0.2.0", http.StatusFound)
	}))
	t.Cleanup(server.Close)
	return server
}

func TestVersionCheckPrintsTheNewestRelease(t *testing.T) {
	env, out, errs := fakeEnv()
	env.Releases = releasePage(t).URL
	require.Equal(t, clierr.Unknown, Main(t.Context(), []string{"version", "--check", "-o", "jsonpath={.newest}"}, env), errs)
	require.Equal(t, "v0.2.0", out.String())
	require.Contains(t, errs.String(), "kcpctl devel is not a release, and cannot be compared with v0.2.0")
}

func TestVersionCheckWithoutNetwork(t *testing.T) {
	env, out, errs := fakeEnv()
	page := releasePage(t)
	env.Releases = page.URL
	page.Close()
	require.Equal(t, clierr.Unknown, Main(t.Context(), []string{"version", "--check"}, env))
	require.Empty(t, out.String())
	require.Contains(t, errs.String(), "look for the newest release of kcpctl: ")
	require.Contains(t, errs.String(), "HTTPS_PROXY")
	require.Equal(t, 0, Main(t.Context(), []string{"version"}, env), "only --check uses the network")
}

func TestVersionCheckComparesReleases(t *testing.T) {
	for own, want := range map[string]int{"v0.1.0": clierr.Failed, "v0.2.0": 0, "v0.3.0": 0} {
		env, _, errs := fakeEnv()
		o := versionOptions{env: env}
		require.Equal(t, want, clierr.Code(o.compare(version.Info{Version: own, Newest: "v0.2.0"})), own)
		if want != 0 {
			require.Equal(t, "a newer release is available: https://github.com/kcpctl/kcpctl/releases/tag/v0.2.0\n", errs.String())
		}
	}
}
