package local

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/local/download"
)

// Binaries configures where kcp's binaries come from.
type Binaries struct {
	// Dir is the directory of all binaries (--kcp-bin-dir). If it is set, no other directory is searched.
	Dir string
	// Path is the list of directories that are searched for a binary of the right version: $PATH.
	Path string
	// Source downloads the binaries that are not found.
	Source download.Source
	// known are the versions of files that were run to find them, which takes a while.
	known *sync.Map
}

// binary is a program on this machine. Its size and modification time show whether the file was replaced.
type binary struct {
	Path    string    `json:"path"`
	Size    int64     `json:"size"`
	ModTime time.Time `json:"modTime"`
	// Version is the release that it reports, if any.
	Version string `json:"version,omitempty"`
	// genuine is set if it was built from the module of its project.
	genuine bool
}

// replaced reports whether the path has another file now.
func (b binary) replaced() bool {
	info, err := os.Stat(b.Path)
	return err == nil && (info.Size() != b.Size || !info.ModTime().Equal(b.ModTime))
}

// unchanged reports whether the path still has the file.
func (b binary) unchanged() bool {
	_, err := os.Stat(b.Path)
	return err == nil && !b.replaced()
}

const moreBinaries = "put kcp, kcp-front-proxy, cache-server and virtual-workspaces of one release there, " +
	"or omit --kcp-bin-dir to download them"

// find finds a binary without downloading it. It returns nil if there is none, and then other describes a binary of
// another version, if one was found. kcpctl is the one that runs.
func (b Binaries) find(ctx context.Context, release, name string) (found *binary, other string, err error) {
	if name == topology.ManagedBy {
		path, err := os.Executable()
		if err != nil {
			return nil, "", fmt.Errorf("find the binary of kcpctl itself: %w", err)
		}
		found, err := stat(path)
		return found, "", err
	}
	if b.Dir != "" {
		found, err := b.probe(ctx, filepath.Join(b.Dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist) && download.Project(name) != download.KCP:
			return b.search(ctx, release, name) // kcp is released without it
		case errors.Is(err, fs.ErrNotExist):
			return nil, "", clierr.New(clierr.Failed, moreBinaries, "no binary %s in %s", name, b.Dir)
		case err != nil:
			return nil, "", err
		case !fits(found.Version, release):
			return nil, "", clierr.New(clierr.Failed,
				fmt.Sprintf("set the version to %s in the setup file, or pass a --kcp-bin-dir with the binaries of %s",
					found.Version, release),
				"%s is %s %s, but the setup wants %s", found.Path, download.Project(name), found.Version, release)
		}
		return found, "", nil
	}
	return b.search(ctx, release, name)
}

// search finds a binary in the cache of downloads, or in $PATH.
func (b Binaries) search(ctx context.Context, release, name string) (found *binary, other string, err error) {
	if path, ok := b.Source.Cached(release, name); ok {
		found, err := ofRelease(path, release)
		return found, "", err
	}
	return b.searchIn(ctx, b.Path, release, name)
}

// searchIn finds a binary in a list of directories.
func (b Binaries) searchIn(ctx context.Context, dirs, release, name string) (found *binary, other string, err error) {
	for _, dir := range filepath.SplitList(dirs) {
		if !filepath.IsAbs(dir) {
			continue // probing runs the program, and a relative path depends on the current directory
		}
		found, err := b.probe(ctx, filepath.Join(dir, name))
		if err != nil || !found.genuine {
			continue // another project's program may have the same name
		}
		if fits(found.Version, release) {
			return found, "", nil
		}
		other = fmt.Sprintf("%s is %s %s, but the setup wants %s", found.Path, download.Project(name),
			found.Version, release)
	}
	return nil, other, nil
}

// onMachine finds a binary without downloading it. A process that runs the release already keeps its binary, and a new
// one gets it from where the others have theirs, so that neither needs flags or a network.
func (b Binaries) onMachine(ctx context.Context, n need) (found *binary, other string, err error) {
	found, other, err = b.find(ctx, n.release, n.program)
	switch {
	case err != nil || found != nil:
		return found, other, err
	case n.runs != "":
		found, err = ofRelease(n.runs, n.release)
	default:
		found, _, err = b.searchIn(ctx, n.beside, n.release, n.program)
	}
	return found, other, err
}

// get finds a binary, or downloads it. A process that has run a build of no release keeps it until --kcp-bin-dir has
// another one: a release could be older than its data.
func (b Binaries) get(ctx context.Context, n need) (*binary, error) {
	release := n.release
	name := n.program
	if n.build != "" && b.Dir == "" {
		return b.keepBuild(ctx, n)
	}
	found, other, err := b.onMachine(ctx, n)
	if err != nil || found != nil {
		return found, err
	}
	path, err := b.Source.Get(ctx, release, name)
	if err != nil && other != "" {
		return nil, fmt.Errorf("%s; %w", other, err)
	}
	if err != nil {
		return nil, fmt.Errorf("no binary %s of %s %s in $PATH: %w", name, download.Project(name), release, err)
	}
	return ofRelease(path, release)
}

// keepBuild returns the build that a process has run last.
func (b Binaries) keepBuild(ctx context.Context, n need) (*binary, error) {
	found, err := b.probe(ctx, n.build)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !fits(found.Version, n.release) {
		return nil, clierr.New(clierr.Failed,
			"pass --kcp-bin-dir with a build that can read the data; kcpctl download prints the directory of a release",
			"the data was written by %s, a build of unknown release, which is no longer there", n.build)
	}
	return found, err
}

// need is a binary that a process runs.
type need struct {
	release, program string
	// runs is the path of the binary of this release that the process runs now. It is empty if there is none.
	runs string
	// beside is a list of the directories from which other processes of the setup run this release.
	beside string
	// build is the path of the build of no release that the process has run last. It is empty if it has run none.
	build string
}

func (r *Runtime) need(id topology.ID, deployment *unstructured.Unstructured) (need, error) {
	w, err := r.layout.workload(deployment)
	if err != nil {
		return need{}, err
	}
	return r.needOf(id, w)
}

// needOf returns the binary that a workload needs.
func (r *Runtime) needOf(id topology.ID, w *workload) (need, error) {
	n := need{release: r.release(id), program: w.program}
	n.beside = r.layout.binaryDirs(n.release)
	rec, err := r.layout.record(w.name)
	if err != nil || rec == nil {
		return n, err
	}
	switch have := rec.Binary; {
	case have.Version == n.release && have.unchanged():
		n.runs = have.Path
	case have.Version != n.release && fits(have.Version, n.release) && mayKeepBuild(id, w, have.Path):
		n.build = have.Path
	}
	return n, nil
}

// binaryDirs returns a list of the directories from which processes of the setup run a release.
func (l *Layout) binaryDirs(release string) string {
	files, _ := filepath.Glob(l.path(dirProcesses, "*.json"))
	var dirs []string
	for _, file := range files {
		rec, err := l.record(strings.TrimSuffix(filepath.Base(file), ".json"))
		if err == nil && rec != nil && rec.Binary.Version == release && rec.Binary.unchanged() {
			dirs = append(dirs, filepath.Dir(rec.Binary.Path))
		}
	}
	slices.Sort(dirs)
	return strings.Join(slices.Compact(dirs), string(filepath.ListSeparator))
}

// mayKeepBuild reports whether a process keeps a build: where it has written data also one that is gone, which is then
// an error. A cache server only has copies of the data of shards.
func mayKeepBuild(id topology.ID, w *workload, path string) bool {
	if w.program == topology.ManagedBy || download.Project(w.program) != download.KCP {
		return false
	}
	_, err := os.Stat(path)
	return err == nil || w.etcdDir() != "" && id.Kind() != topology.CacheServer
}

// fetch finds or downloads all binaries that a plan starts, before anything is changed.
func (r *Runtime) fetch(ctx context.Context, p *plan.Plan) error {
	needs := map[need]bool{}
	for _, it := range p.Items {
		if it.Kind != kindDeployment || it.Action != plan.Create && it.Action != plan.Change {
			continue
		}
		n, err := r.need(it.Component, it.Want)
		if err != nil {
			return err
		}
		needs[n] = true
	}
	g, ctx := errgroup.WithContext(ctx)
	for n := range needs {
		g.Go(func() error {
			_, err := r.options.Binaries.get(ctx, n)
			return err
		})
	}
	return g.Wait()
}

// Download downloads all binaries that objects need, also those that are in $PATH, and returns their directories.
func (r *Runtime) Download(ctx context.Context, objects []render.Object) ([]string, error) {
	dirs := map[string]bool{}
	for _, o := range objects {
		if o.GetKind() != kindDeployment {
			continue
		}
		n, err := r.need(o.Component, o.Unstructured)
		if err != nil {
			return nil, err
		}
		path, err := r.options.Binaries.Source.Get(ctx, n.release, n.program)
		if err != nil {
			return nil, err
		}
		dirs[filepath.Dir(path)] = true
	}
	return slices.Sorted(maps.Keys(dirs)), nil
}

// fits reports whether a binary can be used for a release. A binary without a version can, and so can a build between
// two releases: developers of kcp use such builds.
func fits(have, release string) bool {
	v, err := version.ParseSemantic(have)
	return err != nil || v.PreRelease() != "" || have == release
}

// stat returns a file as a binary. It fails with fs.ErrNotExist if the path has no file.
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

// ofRelease returns a binary whose release is known, because it was downloaded.
func ofRelease(path, release string) (*binary, error) {
	b, err := stat(path)
	if b != nil {
		b.Version = release
		b.genuine = true
	}
	return b, err
}

// probe returns a file as a binary, with its version.
func (b Binaries) probe(ctx context.Context, path string) (*binary, error) {
	found, err := stat(path)
	if err != nil {
		return nil, err
	}
	key := *found
	if known, ok := b.known.Load(key); ok {
		return known.(*binary), nil
	}
	found.Version, found.genuine, err = versionOf(ctx, path)
	if errors.Is(err, syscall.ENOEXEC) {
		return nil, clierr.New(clierr.Failed,
			"replace it by the binary for this machine, "+runtime.GOOS+"/"+runtime.GOARCH,
			"%s is not a program that this machine can run", path)
	}
	b.known.Store(key, found)
	return found, ctx.Err()
}

const (
	modules        = "github.com/kcp-dev/" // has the modules of all projects
	versionTimeout = 10 * time.Second
)

// versionOf returns the release of a binary, if it reports one, and whether it was built from its project's module.
// Builds from the module proxy have the version in their build information. Others print it: "kcp version
// v1.36.0+kcp-v0.32.3"; not all of them do. The error is why it could not be run.
func versionOf(ctx context.Context, path string) (release string, genuine bool, err error) {
	if info, err := buildinfo.ReadFile(path); err == nil &&
		info.Main.Path == modules+download.Project(filepath.Base(path)) {
		genuine = true
		v, _, _ := strings.Cut(info.Main.Version, "+") // "+dirty": the release's own build writes files into its tree
		if p, err := version.ParseSemantic(v); err == nil && p.PreRelease() == "" {
			return v, true, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.Env = []string{}
	if err := cmd.Run(); err != nil {
		return "", genuine, err
	}
	m := regexp.MustCompile(`\+kcp-(v[0-9][0-9A-Za-z.-]*)`).FindSubmatch(out.Bytes())
	if m == nil {
		return "", genuine, nil
	}
	return string(m[1]), true, nil
}
