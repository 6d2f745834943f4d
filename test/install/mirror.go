// Package install tests install.sh with the shells that users have. It also has a mirror of releases for other tests.
package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Mirror serves the release v0.1.0 for this machine, with a program as each of its programs. It is also the newest one.
// The releases v0.0.7 to v0.0.9 are incomplete or damaged. The result is for KCPCTL_RELEASES.
func Mirror(t *testing.T, program string) string {
	t.Helper()
	name := fmt.Sprintf("kcpctl_0.1.0_%s_%s.tar.gz", runtime.GOOS, runtime.GOARCH)
	content := archive(t, program)
	sums := fmt.Sprintf("%x  %s\n%x  %s.cdx.json\n", sha256.Sum256(content), name, sha256.Sum256(nil), name)
	return serve(t, map[string]string{
		"/latest/download/checksums.txt": sums,
		"/latest/download/" + name:       string(content),
		"/download/v0.1.0/checksums.txt": sums,
		"/download/v0.1.0/" + name:       string(content),
		"/download/v0.0.9/checksums.txt": sums,
		"/download/v0.0.9/" + name:       string(content) + "x",
		"/download/v0.0.8/checksums.txt": sums,
		"/download/v0.0.7/checksums.txt": strings.ReplaceAll(sums, runtime.GOOS, "plan9"),
	})
}

func serve(t *testing.T, files map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(content))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// archive returns the archive of a release.
func archive(t *testing.T, program string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range []string{"LICENSE", "kcpctl", "kubectl_complete-kcpctl"} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(program))}))
		_, err := w.Write([]byte(program))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}
