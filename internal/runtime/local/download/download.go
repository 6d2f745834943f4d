// Package download downloads the binaries of a kcp release: from its release page, or a mirror of it, into a cache.
package download

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/filelock"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
)

const maxChecksums = 1 << 20 // the file of checksums has a few kilobytes

// The projects that release binaries.
const (
	KCP       = "kcp"
	SyncAgent = "api-syncagent"
)

// Project returns the project that releases a binary.
func Project(binary string) string {
	if binary == SyncAgent {
		return SyncAgent
	}
	return KCP
}

// releases has the releases of a project.
func releases(project string) string { return "https://github.com/kcp-dev/" + project + "/releases" }

// releasePage has the files of the releases of a project, each in a directory of its version.
func releasePage(project string) string { return releases(project) + "/download" }

// file is a file of a release.
type file struct{ project, version, name string }

// Source is where binaries come from and where they are kept.
type Source struct {
	// URL is a mirror of the release pages, with the same files: <URL>/v0.32.3/kcp_0.32.3_linux_amd64.tar.gz. Empty is
	// the release page of each project.
	URL string
	// Dir is the cache.
	Dir string
	// OS and Arch are the GOOS and the GOARCH of the machine that runs the binaries.
	OS, Arch string
	// Client makes the requests. Nil is a client that gives up after a few seconds if it cannot connect.
	Client *http.Client
	// Stall is how long a server may send nothing before the attempt ends. Zero is 30 seconds.
	Stall time.Duration
	// Progress is called many times a second with the progress of a download. It may be nil.
	Progress func(Progress)
}

// Progress is the progress of a download.
type Progress struct {
	Name string
	// Done and Total are in bytes. Total is 0 if the server does not report it.
	Done, Total int64
}

// archive returns the file of a release that has a binary: there is one for each (kcp, api-syncagent:
// .goreleaser.yaml).
func (s Source) archive(version, binary string) string {
	return fmt.Sprintf("%s_%s_%s_%s.tar.gz", binary, strings.TrimPrefix(version, "v"), s.OS, s.Arch)
}

// checksumFile returns the file with the SHA-256 checksums of a release (the default name of goreleaser).
func checksumFile(project, version string) string {
	return fmt.Sprintf("%s_%s_checksums.txt", project, strings.TrimPrefix(version, "v"))
}

// releaseDir returns the directory of the binaries of a release.
func (s Source) releaseDir(project, version string) string {
	return filepath.Join(s.Dir, project, version, s.OS+"-"+s.Arch)
}

// Cached returns the path of a binary in the cache, and whether it exists.
func (s Source) Cached(version, binary string) (path string, ok bool) {
	path = filepath.Join(s.releaseDir(Project(binary), version), binary)
	info, err := os.Stat(path)
	return path, err == nil && info.Mode().IsRegular()
}

// Get returns the path of a binary of a release, and downloads it if it is not in the cache. Binaries in the cache are
// complete, and their checksum was right.
func (s Source) Get(ctx context.Context, version, binary string) (string, error) {
	path, ok := s.Cached(version, binary)
	if ok {
		return path, nil
	}
	name := s.archive(version, binary)
	archive := file{Project(binary), version, name}
	part, err := openPart(ctx, filepath.Join(s.releaseDir(archive.project, version), name+".part"))
	if err != nil {
		return "", disk.Explain(err, disk.CacheHome)
	}
	defer part.Close()
	defer os.Remove(part.Name())
	if path, ok := s.Cached(version, binary); ok { // another process has downloaded it meanwhile
		return path, nil
	}
	if err := s.fetchArchive(ctx, archive, part); err != nil {
		return "", err
	}
	if err := extract(part, binary, path); err != nil {
		return "", disk.Explain(fmt.Errorf("unpack %s: %w", name, err), disk.CacheHome)
	}
	return path, nil
}

// openPart opens the file for an archive, and waits while another process is downloading it.
func openPart(ctx context.Context, path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return filelock.Wait(ctx, func() (*os.File, error) { return filelock.Open(path, os.O_RDWR|os.O_CREATE, 0o644) })
}

// fetchArchive downloads an archive and verifies its checksum.
func (s Source) fetchArchive(ctx context.Context, f file, part *os.File) error {
	want, err := s.checksum(ctx, f)
	if err != nil {
		return err
	}
	url, hash := s.url(f), sha256.New()
	err = s.retry(ctx, url, func(resp *http.Response) error {
		hash.Reset()
		if _, err := part.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := part.Truncate(0); err != nil {
			return err
		}
		p := Progress{Name: f.name, Total: max(0, resp.ContentLength)}
		_, err := io.Copy(&counter{io.MultiWriter(part, hash), p, s.Progress}, resp.Body)
		return err
	})
	if err != nil {
		return s.explain(err, f.project, f.version, url)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		return clierr.New(clierr.Failed,
			"rerun the command; if the error persists, the file on the server is damaged or was tampered "+
				"with: do not use it",
			"%s has the SHA-256 checksum %s, but %s has %s", url, got, checksumFile(f.project, f.version), want)
	}
	return nil
}

func (s Source) url(f file) string {
	return strings.TrimSuffix(cmp.Or(s.URL, releasePage(f.project)), "/") + "/" + f.version + "/" + f.name
}

// checksum returns the checksum of a file of a release.
func (s Source) checksum(ctx context.Context, of file) (string, error) {
	url := s.url(file{of.project, of.version, checksumFile(of.project, of.version)})
	var raw bytes.Buffer
	err := s.retry(ctx, url, func(resp *http.Response) error {
		raw.Reset()
		_, err := io.Copy(&raw, io.LimitReader(resp.Body, maxChecksums))
		return err
	})
	if err != nil {
		return "", s.explain(err, of.project, of.version, url)
	}
	for line := range strings.Lines(raw.String()) {
		f := strings.Fields(line)
		if len(f) == 2 && strings.TrimPrefix(f[1], "*") == of.name && len(f[0]) == hex.EncodedLen(sha256.Size) {
			return strings.ToLower(f[0]), nil
		}
	}
	return "", clierr.New(clierr.Failed, "check spec.version and --kcp-url; with --kcp-bin-dir nothing is downloaded",
		"%s has no checksum of %s", url, of.name)
}

// counter reports what is written through it.
type counter struct {
	w      io.Writer
	p      Progress
	report func(Progress)
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.p.Done += int64(n)
	if c.report != nil {
		c.report(c.p)
	}
	return n, err
}

// explain adds a next step to an error.
func (s Source) explain(err error, project, version, url string) error {
	var status *statusError
	hint := "get the binaries from " + releases(project) + "/tag/" + version +
		" on another machine and pass --kcp-bin-dir, or pass a mirror with --kcp-url"
	full := disk.Explain(err, disk.CacheHome)
	switch {
	case clierr.Hint(full) != "":
		hint = clierr.Hint(full)
	case errors.As(err, &status) && status.code == http.StatusNotFound:
		hint = fmt.Sprintf("check spec.version, and that this release has binaries for %s/%s; "+
			"or pass your own with --kcp-bin-dir", s.OS, s.Arch)
	case errors.Is(err, context.Canceled):
		hint = ""
	}
	var request *neturl.Error
	if errors.As(err, &request) && request.URL == url {
		err = request.Err // which does not repeat the URL
	}
	return clierr.New(clierr.Failed, hint, "download %s: %w", url, err)
}
