// Package download gets the binaries of a kcp release: from its release page, or a mirror of it, into a cache.
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
	"syscall"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

const (
	// ReleasePage is where kcp's releases are: below it a folder for each version.
	ReleasePage = "https://github.com/kcp-dev/kcp/releases/download"

	defaultStall = 30 * time.Second
	attempts     = 4
	maxList      = 1 << 20 // a list of checksums has a few kilobytes
)

// Source is where binaries come from and where they are kept.
type Source struct {
	// URL is the release page, or a mirror with the same files: <URL>/v0.32.3/kcp_0.32.3_linux_amd64.tar.gz. Empty is
	// ReleasePage.
	URL string
	// Dir is the cache.
	Dir string
	// OS and Arch are those of the machine that runs the binaries, in the words of Go.
	OS, Arch string
	// Client makes the requests. Nil is http.DefaultClient.
	Client *http.Client
	// Stall is how long a server may send nothing. Zero is 30 seconds.
	Stall time.Duration
	// Progress is told how far a download is, many times a second. It may be nil.
	Progress func(Progress)
}

// Progress is how far a download is.
type Progress struct {
	Name string
	// Done and Total are in bytes. Total is 0 if the server does not say.
	Done, Total int64
}

// archive is the file of a release that has a binary: one each, as .goreleaser.yaml of kcp has it. All have the same form;
// that of kcp itself has goreleaser's default name.
func (s Source) archive(version, binary string) string {
	return fmt.Sprintf("%s_%s_%s_%s.tar.gz", binary, strings.TrimPrefix(version, "v"), s.OS, s.Arch)
}

// list is the file with the SHA-256 sums of a release (goreleaser's default name).
func list(version string) string {
	return fmt.Sprintf("kcp_%s_checksums.txt", strings.TrimPrefix(version, "v"))
}

func (s Source) folder(version string) string {
	return filepath.Join(s.Dir, "kcp", version, s.OS+"-"+s.Arch)
}

// Cached returns where a binary is, or will be, and whether it is there.
func (s Source) Cached(version, binary string) (path string, ok bool) {
	path = filepath.Join(s.folder(version), binary)
	info, err := os.Stat(path)
	return path, err == nil && info.Mode().IsRegular()
}

// Get returns the path of a binary of a release, and downloads it if it is not in the cache. What is in the cache is whole
// and had the right checksum.
func (s Source) Get(ctx context.Context, version, binary string) (string, error) {
	path, ok := s.Cached(version, binary)
	if ok {
		return path, nil
	}
	name := s.archive(version, binary)
	part, err := openPart(ctx, filepath.Join(s.folder(version), name+".part"))
	if err != nil {
		return "", diskError(err)
	}
	defer part.Close()
	if path, ok := s.Cached(version, binary); ok { // another process was faster
		return path, os.Remove(part.Name())
	}
	if err := s.fetchArchive(ctx, version, name, part); err != nil {
		return "", err
	}
	if err := extract(part, binary, path); err != nil {
		return "", diskError(fmt.Errorf("unpack %s: %w", name, err))
	}
	return path, os.Remove(part.Name())
}

// openPart opens the file of an unfinished download and waits until no other process writes to it.
func openPart(ctx context.Context, path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		mine, errMine := f.Stat()
		there, errThere := os.Stat(path)
		if err == nil && errMine == nil && errThere == nil && os.SameFile(mine, there) {
			return f, nil
		}
		_ = f.Close()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// fetchArchive downloads an archive and checks it. What an earlier attempt left is continued, and thrown away once if the
// whole is not what it should be.
func (s Source) fetchArchive(ctx context.Context, version, name string, part *os.File) error {
	want, err := s.checksum(ctx, version, name)
	if err != nil {
		return err
	}
	resumed, err := part.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	url := s.url(version, name)
	for {
		if err := s.complete(ctx, url, name, part); err != nil {
			return s.explain(err, url)
		}
		got, err := sum(part)
		if err != nil {
			return err
		}
		if got == want {
			return nil
		}
		if err := part.Truncate(0); err != nil {
			return err
		}
		if resumed == 0 {
			return clierr.New(clierr.Failed, "try again; if it stays so, what the server sends is damaged or was tampered with: do not use it",
				"%s has the SHA-256 sum %s, but %s says %s", url, got, list(version), want)
		}
		resumed = 0
	}
}

func (s Source) url(version, name string) string {
	return strings.TrimSuffix(cmp.Or(s.URL, ReleasePage), "/") + "/" + version + "/" + name
}

// checksum finds the sum of a file in the list of its release.
func (s Source) checksum(ctx context.Context, version, name string) (string, error) {
	url := s.url(version, list(version))
	var raw bytes.Buffer
	err := s.retry(ctx, func() error {
		raw.Reset()
		return s.get(ctx, url, 0, func(resp *http.Response) error {
			_, err := io.Copy(&raw, io.LimitReader(resp.Body, maxList))
			return err
		})
	})
	if err != nil {
		return "", s.explain(err, url)
	}
	for line := range strings.Lines(raw.String()) {
		f := strings.Fields(line)
		if len(f) == 2 && strings.TrimPrefix(f[1], "*") == name && len(f[0]) == hex.EncodedLen(sha256.Size) {
			return strings.ToLower(f[0]), nil
		}
	}
	return "", clierr.New(clierr.Failed, "check spec.version and --kcp-url; with --kcp-bin-dir nothing is downloaded",
		"%s has no checksum of %s", url, name)
}

// complete downloads what a part lacks, with a few attempts.
func (s Source) complete(ctx context.Context, url, name string, part *os.File) error {
	return s.retry(ctx, func() error {
		have, err := part.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		return s.get(ctx, url, have, func(resp *http.Response) error {
			if resp.StatusCode != http.StatusPartialContent && have > 0 {
				// The server sends everything, whatever we asked for.
				have = 0
				if err := errors.Join(part.Truncate(0), seekStart(part)); err != nil {
					return err
				}
			}
			p := Progress{Name: name, Done: have}
			if resp.ContentLength > 0 {
				p.Total = have + resp.ContentLength
			}
			_, err := io.Copy(&counter{part, p, s.Progress}, resp.Body)
			return err
		})
	})
}

func seekStart(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

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

func sum(f *os.File) (string, error) {
	if err := seekStart(f); err != nil {
		return "", err
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// explain says what to do without the release page.
func (s Source) explain(err error, url string) error {
	var status *statusError
	hint := "get the binaries from " + ReleasePage + " on another machine and pass --kcp-bin-dir, or pass a mirror with --kcp-url"
	if errors.As(err, &status) && status.code == http.StatusNotFound {
		hint = fmt.Sprintf("check spec.version: is there such a release for %s/%s? With binaries of your own, pass --kcp-bin-dir",
			s.OS, s.Arch)
	}
	if errors.Is(err, context.Canceled) {
		hint = ""
	}
	if disk := diskError(err); clierr.Hint(disk) != "" {
		hint = clierr.Hint(disk)
	}
	var request *neturl.Error
	if errors.As(err, &request) && request.URL == url {
		err = request.Err // which does not repeat the URL
	}
	return clierr.New(clierr.Failed, hint, "download %s: %w", url, err)
}

// diskError adds what to do to an error of the file system.
func diskError(err error) error {
	hint := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = "free some space, or set XDG_CACHE_HOME to a directory on another disk"
	case errors.Is(err, syscall.EROFS), errors.Is(err, os.ErrPermission):
		hint = "set XDG_CACHE_HOME to a directory that you can write to"
	default:
		return err
	}
	return &clierr.Error{Err: err, Code: clierr.Failed, Hint: hint}
}
