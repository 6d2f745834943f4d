package local

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/local/download"
)

// Binaries says where kcp's binaries come from.
type Binaries struct {
	// Dir has them all (--kcp-bin-dir); nothing else is looked at then. It may be empty.
	Dir string
	// Path is the list of folders that are searched for a binary of the right version: $PATH.
	Path string
	// Source downloads what is found nowhere.
	Source download.Source
	// known are the versions of files that were asked for it, which takes a while.
	known *sync.Map
}

// binary is a program on this machine. The file is told from a later one by its size and time.
type binary struct {
	Path    string    `json:"path"`
	Size    int64     `json:"size"`
	ModTime time.Time `json:"modTime"`
	// Version is the release that it says it is; empty if it does not say.
	Version string `json:"version,omitempty"`
	// ofKCP says that it was built from kcp's module.
	ofKCP bool
}

// replaced tells whether another file is there now.
func (b binary) replaced() bool {
	info, err := os.Stat(b.Path)
	return err == nil && (info.Size() != b.Size || !info.ModTime().Equal(b.ModTime))
}

const moreBinaries = "put kcp, kcp-front-proxy, cache-server and virtual-workspaces of one release there, " +
	"or leave out --kcp-bin-dir: then they are downloaded"

// find looks for a binary without downloading it: nil if it is nowhere. other is a sentence about one that was found but has
// another version.
func (b Binaries) find(ctx context.Context, release, name string) (found *binary, other string, err error) {
	if b.Dir != "" {
		found, err := b.probe(ctx, filepath.Join(b.Dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, "", clierr.New(clierr.Failed, moreBinaries, "no binary %s in %s", name, b.Dir)
		case err != nil:
			return nil, "", err
		case !fits(found.Version, release):
			return nil, "", clierr.New(clierr.Failed,
				fmt.Sprintf("set spec.version: %s, or pass a --kcp-bin-dir with the binaries of %s", found.Version, release),
				"%s is kcp %s, but the setup wants %s", found.Path, found.Version, release)
		}
		return found, "", nil
	}
	if path, ok := b.Source.Cached(release, name); ok {
		found, err := ofRelease(path, release)
		return found, "", err
	}
	for _, dir := range filepath.SplitList(b.Path) {
		if !filepath.IsAbs(dir) {
			continue // to ask a program for its version is to run it, and this one depends on the current directory
		}
		found, err := b.probe(ctx, filepath.Join(dir, name))
		if err != nil || !found.ofKCP {
			continue // another project's program may have the same name
		}
		if fits(found.Version, release) {
			return found, "", nil
		}
		other = fmt.Sprintf("%s is kcp %s, but the setup wants %s", found.Path, found.Version, release)
	}
	return nil, other, nil
}

// get finds a binary, or downloads it.
func (b Binaries) get(ctx context.Context, release, name string) (*binary, error) {
	found, other, err := b.find(ctx, release, name)
	if err != nil || found != nil {
		return found, err
	}
	path, err := b.Source.Get(ctx, release, name)
	if err != nil && other != "" {
		return nil, fmt.Errorf("%s; %w", other, err)
	}
	if err != nil {
		return nil, fmt.Errorf("no binary %s of kcp %s in $PATH: %w", name, release, err)
	}
	return ofRelease(path, release)
}

// fits tells whether a binary serves for a release. One that does not say its version does, and so does a build on the way
// from one release to the next: who has such builds knows what they are.
func fits(have, release string) bool {
	v, err := version.ParseSemantic(have)
	return err != nil || v.PreRelease() != "" || have == release
}

// stat looks at a file: fs.ErrNotExist if there is no program.
func stat(path string) (*binary, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	if info.Mode()&0o111 == 0 {
		return nil, clierr.New(clierr.Failed, "run chmod +x on it", "%s is not executable", path)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	return &binary{Path: path, Size: info.Size(), ModTime: info.ModTime()}, nil
}

// ofRelease is a binary of which the release is known, because it was downloaded.
func ofRelease(path, release string) (*binary, error) {
	b, err := stat(path)
	if b != nil {
		b.Version, b.ofKCP = release, true
	}
	return b, err
}

// probe looks at a file and asks for its version.
func (b Binaries) probe(ctx context.Context, path string) (*binary, error) {
	found, err := stat(path)
	if err != nil {
		return nil, err
	}
	key := *found
	if known, ok := b.known.Load(key); ok {
		return known.(*binary), nil
	}
	found.Version, found.ofKCP = versionOf(ctx, path)
	b.known.Store(key, found)
	return found, ctx.Err()
}

const (
	module       = "github.com/kcp-dev/kcp"
	probeTimeout = 10 * time.Second
)

// versionOf says which release a binary is of, empty if it does not say, and whether it is built from kcp's module. What the
// module proxy built says its version in its build information, others when they are asked: "kcp version
// v1.36.0+kcp-v0.32.3". Not all of them can be asked.
func versionOf(ctx context.Context, path string) (release string, ofKCP bool) {
	if info, err := buildinfo.ReadFile(path); err == nil && info.Main.Path == module {
		ofKCP = true
		v, _, _ := strings.Cut(info.Main.Version, "+") // "+dirty": the release's own build writes files into its tree
		if p, err := version.ParseSemantic(v); err == nil && p.PreRelease() == "" {
			return v, true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	var out bytes.Buffer
	cmd.Stdout, cmd.Env = &out, []string{}
	if err := cmd.Run(); err != nil {
		return "", ofKCP
	}
	m := regexp.MustCompile(`\+kcp-(v[0-9][0-9A-Za-z.-]*)`).FindSubmatch(out.Bytes())
	if m == nil {
		return "", ofKCP
	}
	return string(m[1]), true
}
