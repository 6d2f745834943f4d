package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kcpctl/kcpctl/test/gobuild"
)

// binDir returns the directory of the binaries of a set.
func (t *testbed) binDir(s buildSet) string { return filepath.Join(t.cache, "bin", s.key()) }

// wanted is a set with the names of its wanted binaries. No names mean all binaries.
type wanted struct {
	set   buildSet
	names []string
}

// buildAll builds the binaries that the cache lacks, one set after the other.
func (t *testbed) buildAll(ctx context.Context, all []wanted) error {
	var lacking []wanted
	for _, w := range all {
		if len(w.names) == 0 {
			w.names = w.set.names()
		}
		if len(missing(t.binDir(w.set), w.names)) > 0 {
			lacking = append(lacking, w)
		}
	}
	if len(lacking) > 1 {
		ctx, cancel := context.WithCancel(ctx)
		var g sync.WaitGroup
		g.Go(func() { download(ctx, lacking[1:]) })
		defer g.Wait()
		defer cancel()
	}
	for i, w := range lacking {
		if len(lacking) > 1 {
			t.log.note("set %d of %d to build: %s", i+1, len(lacking), w.set.key())
		}
		if err := t.build(ctx, w.set, w.names...); err != nil {
			return err
		}
	}
	return nil
}

// download downloads the modules of sets, while an earlier set is compiled. An error is that of the build, which downloads
// what is missing.
func download(ctx context.Context, all []wanted) {
	source, err := sourceDir()
	if err != nil {
		return
	}
	for _, w := range all {
		args := []string{"list", "-deps"}
		for _, b := range w.set.binaries {
			args = append(args, b.pkg)
		}
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Env = filepath.Join(source, "build", w.set.name), append(os.Environ(), goEnv()...)
		cmd.Run() //nolint:errcheck // see above
	}
}

// build builds the named binaries of s that the cache lacks. No names mean all binaries.
func (t *testbed) build(ctx context.Context, s buildSet, names ...string) error {
	if len(names) == 0 {
		names = s.names()
	}
	if len(missing(t.binDir(s), names)) == 0 {
		return nil
	}
	unlock, err := t.lock(ctx, "build-"+s.key())
	if err != nil {
		return err
	}
	defer unlock()
	lacking := missing(t.binDir(s), names) // another process may have built them in the meantime
	if len(lacking) == 0 {
		return nil
	}
	began := time.Now()
	t.log.note("building %s: %s", s.key(), strings.Join(lacking, " "))
	if err := t.compile(ctx, s, lacking); err != nil {
		return fmt.Errorf("build %s: %w", s.key(), err)
	}
	t.log.step("built "+s.key(), time.Since(began))
	return nil
}

func missing(dir string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		_, err := os.Stat(filepath.Join(dir, n))
		return err == nil
	})
}

// compile builds into a temporary directory and renames, so that a binary with its final name is complete.
func (t *testbed) compile(ctx context.Context, s buildSet, names []string) error {
	module, err := t.module(ctx, s)
	if err != nil {
		return err
	}
	flags := "-s -w"
	for _, stamp := range s.stamps {
		flags += " -X " + stamp
	}
	out := filepath.Join(module, ".out")
	args := []string{"-trimpath", "-buildvcs=false", "-tags", s.tags, "-ldflags", flags, "-o", out + string(filepath.Separator)}
	binaries := slices.DeleteFunc(slices.Clone(s.binaries), func(b binary) bool { return !slices.Contains(names, b.name) })
	for _, b := range binaries {
		args = append(args, b.pkg)
	}
	report := func(line string) { t.log.note("%s: %s", s.key(), line) }
	if err := (gobuild.Build{Dir: module, Env: goEnv(), Args: args, Report: report}).Run(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(t.binDir(s), 0o755); err != nil {
		return err
	}
	for _, b := range binaries {
		if err := os.Rename(filepath.Join(out, b.output()), filepath.Join(t.binDir(s), b.name)); err != nil {
			return err
		}
	}
	return os.RemoveAll(out)
}

// output returns the file name that go build gives the binary.
func (b binary) output() string {
	switch last := path.Base(b.pkg); {
	case last == ".":
		return b.name
	case regexp.MustCompile(`^v[0-9]+$`).MatchString(last):
		return path.Base(path.Dir(b.pkg))
	default:
		return last
	}
}

// module copies the build module of the set into the cache and completes it there, because it then has paths of this
// machine.
func (t *testbed) module(ctx context.Context, s buildSet) (string, error) {
	source, err := sourceDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(t.cache, "build", s.key())
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(source, "build", s.name))); err != nil {
		return "", fmt.Errorf("copy the build module: %w", err)
	}
	if s.patched {
		err = addPatchedFramework(ctx, dir)
	}
	return dir, err
}

// sourceDir finds test/testbed above the working directory. Directories with a go.mod cannot be embedded into the
// program.
func sourceDir() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		source := filepath.Join(dir, "test", "testbed")
		if _, err := os.Stat(filepath.Join(source, "build", "kubernetes", "go.mod")); err == nil {
			return source, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in the repository of kcpctl, which is needed to build binaries", wd)
		}
	}
}

// goEnv is the environment of go in a build module.
func goEnv() []string {
	// The checksum database does not know kcp's modules; go.sum pins their hashes.
	return []string{"CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off", "GONOSUMDB=github.com/kcp-dev/*"}
}
