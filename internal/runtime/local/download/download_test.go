package download

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

const (
	release = "v0.32.3"
	asset   = "kcp-front-proxy_0.32.3_linux_arm64.tar.gz"
)

// archiveOf makes an archive as kcp's releases are: bin/<binary>, and a license.
func archiveOf(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for name, content := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}))
		_, err := w.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	return out.Bytes()
}

// program returns a file that does not compress.
func program() []byte {
	b := make([]byte, 300_000)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// page is a release page whose answers a test can change.
type page struct {
	archive []byte
	sums    string
	// bend serves the nth request for the archive, from 1, and reports whether it did.
	bend func(n int, w http.ResponseWriter, r *http.Request) bool

	requests atomic.Int32
}

func newPage(t *testing.T) *page {
	p := &page{archive: archiveOf(t, map[string][]byte{"LICENSE": []byte("..."), "bin/kcp-front-proxy": program()})}
	p.sums = fmt.Sprintf("%x  kcp_0.32.3_linux_arm64.tar.gz\n%x  %s\n", sha256.Sum256(nil), sha256.Sum256(p.archive), asset)
	return p
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v0.32.3/kcp_0.32.3_checksums.txt":
		fmt.Fprint(w, p.sums)
	case "/v0.32.3/" + asset:
		n := int(p.requests.Add(1))
		if p.bend == nil || !p.bend(n, w, r) {
			http.ServeContent(w, r, asset, time.Time{}, bytes.NewReader(p.archive))
		}
	default:
		http.NotFound(w, r)
	}
}

// cut sends less than the header promises.
func (p *page) cut(w http.ResponseWriter, n int) bool {
	w.Header().Set("Content-Length", strconv.Itoa(len(p.archive)))
	_, _ = w.Write(p.archive[:n])
	return true
}

func serve(t *testing.T, h http.Handler) Source {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return Source{URL: srv.URL + "/", Dir: t.TempDir(), OS: "linux", Arch: "arm64", Stall: time.Minute}
}

func requireInstalled(t *testing.T, s Source, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(program(), content))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode())
	requireOnly(t, s, "kcp-front-proxy")
}

// requireOnly makes sure that nothing else is in the cache.
func requireOnly(t *testing.T, s Source, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(s.releaseDir(KCP, release))
	require.NoError(t, err)
	got := []string{}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	require.ElementsMatch(t, names, got)
}

func TestGet(t *testing.T) {
	for name, tc := range map[string]struct {
		bend     func(p *page) func(int, http.ResponseWriter, *http.Request) bool
		requests int
	}{
		"at once": {requests: 1},
		"redirected": {
			bend: func(*page) func(int, http.ResponseWriter, *http.Request) bool {
				return func(n int, w http.ResponseWriter, r *http.Request) bool {
					if n > 1 {
						return false
					}
					http.Redirect(w, r, r.URL.Path, http.StatusFound)
					return true
				}
			},
			requests: 2,
		},
		"truncated, then again": {
			bend: func(p *page) func(int, http.ResponseWriter, *http.Request) bool {
				return func(n int, w http.ResponseWriter, _ *http.Request) bool { return n == 1 && p.cut(w, 200_000) }
			},
			requests: 2,
		},
		"more at first, then again": {
			bend: func(p *page) func(int, http.ResponseWriter, *http.Request) bool {
				return func(n int, w http.ResponseWriter, _ *http.Request) bool {
					if n > 1 {
						return false
					}
					w.Header().Set("Content-Length", strconv.Itoa(2*len(p.archive)))
					_, _ = w.Write(append(p.archive, "more"...))
					return true
				}
			},
			requests: 2,
		},
		"a gateway's error": {
			bend: func(*page) func(int, http.ResponseWriter, *http.Request) bool {
				return func(n int, w http.ResponseWriter, _ *http.Request) bool {
					if n > 2 {
						return false
					}
					w.WriteHeader(http.StatusBadGateway)
					return true
				}
			},
			requests: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPage(t)
			if tc.bend != nil {
				p.bend = tc.bend(p)
			}
			s := serve(t, p)
			var last Progress
			s.Progress = func(now Progress) { last = now }
			path, err := s.Get(t.Context(), release, "kcp-front-proxy")
			require.NoError(t, err)
			require.Equal(t, filepath.Join(s.Dir, "kcp/v0.32.3/linux-arm64/kcp-front-proxy"), path)
			requireInstalled(t, s, path)
			require.EqualValues(t, tc.requests, p.requests.Load())
			size := int64(len(p.archive))
			require.Equal(t, asset, last.Name)
			require.Equal(t, size, last.Done)

			again, err := s.Get(t.Context(), release, "kcp-front-proxy")
			require.NoError(t, err)
			require.Equal(t, path, again)
			require.EqualValues(t, tc.requests, p.requests.Load(), "it comes from the cache")
		})
	}
}

func TestGetRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		bend      func(t *testing.T, p *page)
		release   string
		err, hint string
	}{
		"a tampered archive": {
			bend: func(_ *testing.T, p *page) {
				p.archive = bytes.Replace(p.archive, p.archive[1000:1010], []byte("xxxxxxxxxx"), 1)
			},
			err: "has the SHA-256 checksum", hint: "do not use it",
		},
		"checksums without the file": {
			bend: func(_ *testing.T, p *page) { p.sums = "abc  other.tar.gz\n" }, err: "has no checksum of " + asset, hint: "--kcp-url",
		},
		"an HTML page and no checksums": {
			bend: func(_ *testing.T, p *page) { p.sums = "<html>Sign in</html>" }, err: "has no checksum of " + asset, hint: "--kcp-url",
		},
		"an archive without the binary": {
			bend: func(t *testing.T, p *page) {
				p.archive = archiveOf(t, map[string][]byte{"bin/other": []byte("x")})
				p.sums = fmt.Sprintf("%x  %s\n", sha256.Sum256(p.archive), asset)
			},
			err: "no binary kcp-front-proxy in it",
		},
		"a file that is not an archive": {
			bend: func(_ *testing.T, p *page) {
				p.archive = []byte("hello")
				p.sums = fmt.Sprintf("%x  %s\n", sha256.Sum256(p.archive), asset)
			},
			err: "unpack " + asset,
		},
		"a release that does not exist": {
			bend: func(*testing.T, *page) {}, release: "v9.9.9", err: "the server answers 404 Not Found", hint: "check spec.version",
		},
		"always truncated": {
			bend: func(_ *testing.T, p *page) {
				p.bend = func(_ int, w http.ResponseWriter, _ *http.Request) bool { return p.cut(w, 10) }
			},
			err: "unexpected EOF", hint: "--kcp-bin-dir",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPage(t)
			tc.bend(t, p)
			s := serve(t, p)
			version := release
			if tc.release != "" {
				version = tc.release
			}
			_, err := s.Get(t.Context(), version, "kcp-front-proxy")
			require.ErrorContains(t, err, tc.err)
			require.Contains(t, clierr.Hint(err), tc.hint)
			_, ok := s.Cached(version, "kcp-front-proxy")
			require.False(t, ok, "nothing is installed")
		})
	}
}

// A run that was killed has left a part of an archive, also of an earlier kcpctl.
func TestGetReplacesWhatAnEarlierRunLeft(t *testing.T) {
	p := newPage(t)
	for name, left := range map[string][]byte{
		"a good part": p.archive[:1000], "all of it": p.archive, "a bad part": []byte(strings.Repeat("x", 1000)),
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, p)
			part := filepath.Join(s.releaseDir(KCP, release), asset+".part")
			require.NoError(t, os.MkdirAll(filepath.Dir(part), 0o755))
			require.NoError(t, os.WriteFile(part, left, 0o644))
			path, err := s.Get(t.Context(), release, "kcp-front-proxy")
			require.NoError(t, err)
			requireInstalled(t, s, path)
		})
	}
}

// direct serves requests without a network, so that they can be in a bubble with virtual time.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	body, out := io.Pipe()
	go func() {
		d.ServeHTTP(&directWriter{out, http.Header{}}, r)
		_ = out.Close()
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body, ContentLength: -1, Request: r}, nil
}

type directWriter struct {
	io.Writer
	header http.Header
}

func (w *directWriter) Header() http.Header { return w.header }
func (w *directWriter) WriteHeader(int)     {}

// A slow connection is not a stalled one.
func TestGetWaitsForASlowServer(t *testing.T) { synctest.Test(t, getWaitsForASlowServer) }

func getWaitsForASlowServer(t *testing.T) {
	const stall = time.Second
	p := newPage(t)
	p.bend = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		for rest := p.archive; len(rest) > 0; {
			n := min(len(rest), len(p.archive)/8)
			_, _ = w.Write(rest[:n])
			rest = rest[n:]
			time.Sleep(stall / 4)
		}
		return true
	}
	s := Source{URL: "http://kcp/", Dir: t.TempDir(), OS: "linux", Arch: "arm64", Stall: stall}
	s.Client = &http.Client{Transport: direct{p}}
	path, err := s.Get(t.Context(), release, "kcp-front-proxy")
	require.NoError(t, err, "it takes longer than the limit, but something always arrives")
	requireInstalled(t, s, path)
	require.EqualValues(t, 1, p.requests.Load())
}

// hang sends a little, and then nothing until the client disconnects.
func hang(p *page) {
	p.bend = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		_, _ = w.Write(p.archive[:100])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}
}

func TestGetGivesUpOnAServerThatSendsNothing(t *testing.T) {
	p := newPage(t)
	hang(p)
	s := serve(t, p)
	s.Stall = 50 * time.Millisecond
	_, err := s.Get(t.Context(), release, "kcp-front-proxy")
	require.ErrorContains(t, err, "the server sent nothing for 50ms")
	require.Contains(t, clierr.Hint(err), "--kcp-bin-dir")
	require.EqualValues(t, attempts, p.requests.Load())
}

func TestGetStopsWithItsContext(t *testing.T) {
	p := newPage(t)
	hang(p)
	s := serve(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	s.Progress = func(Progress) { cancel() }
	_, err := s.Get(ctx, release, "kcp-front-proxy")
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, p.requests.Load())
	requireOnly(t, s)
}

func TestGetOffline(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	s := Source{URL: srv.URL, Dir: t.TempDir(), OS: "darwin", Arch: "amd64"}
	_, err := s.Get(t.Context(), release, "kcp")
	require.ErrorContains(t, err, "download "+srv.URL+"/v0.32.3/kcp_0.32.3_checksums.txt: dial tcp ")
	require.Contains(t, clierr.Hint(err), "https://github.com/kcp-dev/kcp/releases/tag/v0.32.3 on another machine")
	require.Contains(t, clierr.Hint(err), "--kcp-bin-dir")
	require.Contains(t, clierr.Hint(err), "--kcp-url")
	requireOnly(t, s)
}

// Without a network the error comes soon, also where packets are dropped.
func TestGetGivesUpWhenItCannotConnect(t *testing.T) {
	dials := 0
	s := Source{URL: "http://release.invalid", Dir: t.TempDir(), OS: "linux", Arch: "amd64"}
	s.Client = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		dials++
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	}}}
	_, err := s.Get(t.Context(), release, "kcp")
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Contains(t, clierr.Hint(err), "--kcp-bin-dir")
	require.Equal(t, 1, dials)
}

func TestTwoRunsDownloadOnce(t *testing.T) {
	p := newPage(t)
	s := serve(t, p)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { _, errs[i] = s.Get(t.Context(), release, "kcp-front-proxy") })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, p.requests.Load())
	path, _ := s.Cached(release, "kcp-front-proxy")
	requireInstalled(t, s, path)
}

func TestDiskErrorsHaveAHint(t *testing.T) {
	p := newPage(t)
	s := serve(t, p)
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "kcp"), nil, 0o600))
	_, err := s.Get(t.Context(), release, "kcp-front-proxy")
	require.ErrorIs(t, err, syscall.ENOTDIR)
	for hint, errno := range map[string]syscall.Errno{"free some space": syscall.ENOSPC, "that you can write to": syscall.EROFS} {
		err := s.explain(&os.PathError{Op: "write", Path: "x", Err: errno}, KCP, "v0.32.3", "url")
		require.ErrorIs(t, err, errno)
		require.Contains(t, clierr.Hint(err), hint)
		require.Contains(t, clierr.Hint(err), "XDG_CACHE_HOME")
	}
}

func TestDiskErrorsAreNotRetried(t *testing.T) {
	p := newPage(t)
	s := serve(t, p)
	err := s.retry(t.Context(), s.url(file{KCP, release, asset}), func(*http.Response) error {
		return fmt.Errorf("write: %w", &os.PathError{Op: "write", Path: "x", Err: os.ErrPermission})
	})
	require.ErrorIs(t, err, os.ErrPermission)
	require.EqualValues(t, 1, p.requests.Load())
}
