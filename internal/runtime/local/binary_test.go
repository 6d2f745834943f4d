package local

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/local/download"
)

const kcpModule = modules + download.KCP

// build builds a program called kcp of a module, which prints its version.
func build(t *testing.T, module, says string) string {
	t.Helper()
	src, out := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(src, "go.mod"), []byte("module "+module+"\n\ngo 1.26\n"), 0o600))
	code := `package main; import "fmt"; func main() { fmt.Println("` + says + `") }`
	require.NoError(t, os.WriteFile(filepath.Join(src, "main.go"), []byte(code), 0o600))
	cmd := exec.Command("go", "build", "-o", filepath.Join(out, "kcp"), ".")
	cmd.Dir = src
	msg, err := cmd.CombinedOutput()
	require.NoError(t, err, string(msg))
	return out
}

func TestFindBinaries(t *testing.T) {
	const says = "kcp version v1.36.0+kcp-"
	right, wrong := build(t, kcpModule, says+"v0.32.3"), build(t, kcpModule, says+"v0.28.0")
	next, foreign := build(t, kcpModule, says+"v0.32.0-45-gabcdef"), build(t, "example.com/game", "kcp 1.0")
	mute := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(mute, "kcp"), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	plain := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(plain, "kcp"), nil, 0o644))
	cached := download.Source{Dir: t.TempDir(), OS: "linux", Arch: "amd64"}
	inCache, _ := cached.Cached("v0.32.3", "kcp")
	require.NoError(t, os.MkdirAll(filepath.Dir(inCache), 0o755))
	require.NoError(t, os.Link(filepath.Join(right, "kcp"), inCache))
	list := func(dirs ...string) string {
		out := ""
		for _, d := range dirs {
			out += d + string(filepath.ListSeparator)
		}
		return out
	}
	for name, tc := range map[string]struct {
		b                      Binaries
		want, other, err, hint string
	}{
		"right version in the directory": {b: Binaries{Dir: right}, want: right},
		"wrong version in the directory": {
			b: Binaries{Dir: wrong, Path: list(right)}, err: "/kcp is kcp v0.28.0, but the setup wants v0.32.3", hint: "set the version to v0.28.0",
		},
		"a build between releases":         {b: Binaries{Dir: next}, want: next},
		"no version in the directory":      {b: Binaries{Dir: mute}, want: mute},
		"nothing in the directory":         {b: Binaries{Dir: t.TempDir(), Path: list(right)}, err: "no binary kcp in ", hint: "omit --kcp-bin-dir"},
		"not executable":                   {b: Binaries{Dir: plain}, err: "is not executable", hint: "chmod"},
		"cache before path":                {b: Binaries{Path: list(right), Source: cached}, want: filepath.Dir(inCache)},
		"path":                             {b: Binaries{Path: list(t.TempDir(), mute, foreign, wrong, right)}, want: right},
		"only a wrong version in path":     {b: Binaries{Path: list(wrong)}, other: "/kcp is kcp v0.28.0, but the setup wants v0.32.3"},
		"another project's kcp is ignored": {b: Binaries{Path: list(foreign, mute)}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.b.known = &sync.Map{}
			found, other, err := tc.b.find(t.Context(), "v0.32.3", "kcp")
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.Contains(t, clierr.Hint(err), tc.hint)
				return
			}
			require.NoError(t, err)
			require.Contains(t, other, tc.other)
			require.Equal(t, tc.other == "", other == "")
			if tc.want == "" {
				require.Nil(t, found)
				return
			}
			require.Equal(t, filepath.Join(tc.want, "kcp"), found.Path)
			require.False(t, found.replaced())
		})
	}
}

func TestVersionIsAskedOnce(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho asked >> " + dir + "/asked\necho kcp version v1.36.0+kcp-v0.32.3\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kcp"), []byte(script), 0o755))
	b := Binaries{Dir: dir, known: &sync.Map{}}
	for range 3 {
		found, err := b.get(t.Context(), need{release: "v0.32.3", program: "kcp"})
		require.NoError(t, err)
		require.Equal(t, "v0.32.3", found.Version)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	require.NoError(t, err)
	require.Equal(t, "asked\n", string(asked))
}

// A relative entry of $PATH depends on the current directory: its programs are not run, not even for their version.
func TestRelativePathIsNotProbed(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.Mkdir("bin", 0o700))
	for _, at := range []string{"kcp", "bin/kcp"} {
		script := "#!/bin/sh\necho asked >> " + dir + "/asked\necho kcp version v1.36.0+kcp-v0.32.3\n"
		require.NoError(t, os.WriteFile(at, []byte(script), 0o755))
	}
	for _, path := range []string{"bin", "./bin", "bin/../bin", ".", "", ":", ":bin:", "../" + filepath.Base(dir)} {
		b := Binaries{Path: path, known: &sync.Map{}}
		found, other, err := b.find(t.Context(), "v0.32.3", "kcp")
		require.NoError(t, err)
		require.Nil(t, found)
		require.Empty(t, other)
	}
	require.NoFileExists(t, filepath.Join(dir, "asked"))
}

func TestReplacedBinaryIsNoticed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kcp")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755))
	b, err := stat(path)
	require.NoError(t, err)
	require.False(t, b.replaced())
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/bash\n"), 0o755))
	require.True(t, b.replaced())
	require.NoError(t, os.Remove(path))
	require.False(t, b.replaced(), "a running process does not need the file")
}

// All binaries of a setup are downloaded into one directory, which --kcp-bin-dir takes.
func TestDownload(t *testing.T) {
	m := newMachine(t)
	s := m.open(file())
	page := t.TempDir()
	dir := filepath.Join(page, "v0.32.3")
	require.NoError(t, os.Mkdir(dir, 0o700))
	var sums bytes.Buffer
	for _, name := range []string{"cache-server", "kcp", "kcp-front-proxy"} {
		var archive bytes.Buffer
		z := gzip.NewWriter(&archive)
		w := tar.NewWriter(z)
		require.NoError(t, w.WriteHeader(&tar.Header{Name: "bin/" + name, Size: int64(len(name)), Typeflag: tar.TypeReg}))
		_, err := w.Write([]byte(name))
		require.NoError(t, errors.Join(err, w.Close(), z.Close()))
		asset := name + "_0.32.3_linux_amd64.tar.gz"
		require.NoError(t, os.WriteFile(filepath.Join(dir, asset), archive.Bytes(), 0o600))
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(archive.Bytes()), asset)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kcp_0.32.3_checksums.txt"), sums.Bytes(), 0o600))
	srv := httptest.NewServer(http.FileServer(http.Dir(page)))
	t.Cleanup(srv.Close)

	cache := t.TempDir()
	s.rt.options.Binaries.Source = download.Source{URL: srv.URL, Dir: cache, OS: "linux", Arch: "amd64"}
	dirs, err := s.rt.Download(t.Context(), s.objects)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(cache, "kcp/v0.32.3/linux-amd64")}, dirs)
	entries, err := os.ReadDir(dirs[0])
	require.NoError(t, err)
	require.Len(t, entries, 3)
}

// A restart needs neither --kcp-bin-dir nor a network: the process keeps the binary of its release.
func TestARunningProcessKeepsItsBinary(t *testing.T) {
	offline := Binaries{Source: download.Source{Dir: t.TempDir(), URL: "http://127.0.0.1:0"}, known: &sync.Map{}}
	runs := filepath.Join(t.TempDir(), "kcp")
	require.NoError(t, os.WriteFile(runs, nil, 0o755))
	n := need{release: "v0.32.3", program: "kcp"}
	_, err := offline.get(t.Context(), n)
	require.ErrorContains(t, err, "no binary kcp of kcp v0.32.3")
	n.runs = runs
	found, err := offline.get(t.Context(), n)
	require.NoError(t, err)
	require.Equal(t, runs, found.Path)
	require.Equal(t, "v0.32.3", found.Version)
}

// A restart does not replace a build of kcp's sources by a release, which may be older than the data.
func TestADevelopmentBuildIsKept(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	s := m.open(file())
	s.rt.options.Binaries.Dir = "" // as after a reboot, without the flag
	s.rt.options.Binaries.Source.URL = "http://127.0.0.1:0"
	require.NoError(t, s.rt.StopAll(t.Context()))
	l := s.rt.layout
	for id, name := range map[topology.ID]string{"shard/alpha": alpha, "front-proxy/main": proxy} {
		build := filepath.Join(t.TempDir(), filepath.Base(name))
		require.NoError(t, os.WriteFile(build, []byte("#!/bin/sh\n"), 0o755))
		b, err := stat(build)
		require.NoError(t, err)
		require.NoError(t, l.writeRecord(name, &processRecord{Binary: *b}))
		w, err := l.workloadOf(s.rt.topology.Component(id))
		require.NoError(t, err)
		get := func() (*binary, error) {
			n, err := s.rt.needOf(id, w)
			require.NoError(t, err)
			return s.rt.options.Binaries.get(t.Context(), n)
		}
		found, err := get()
		require.NoError(t, err)
		require.Equal(t, build, found.Path)
		require.NoError(t, os.Remove(build))
		_, err = get()
		if id == "shard/alpha" {
			require.ErrorContains(t, err, "the data was written by "+build)
			require.Contains(t, clierr.Hint(err), "--kcp-bin-dir")
			continue
		}
		require.ErrorContains(t, err, "no binary kcp-front-proxy of kcp", "it has no data")
	}
}

// A new process gets its binary from where the others have theirs: add-shard needs neither a flag nor a network.
func TestBinaryOfANewProcess(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	s := m.open(file())
	s.rt.options.Binaries.Dir = "" // the flag was given to up only
	s.rt.options.Binaries.Source.URL = "http://127.0.0.1:0"
	require.NoError(t, s.rt.StopAll(t.Context()))
	release := s.rt.release("front-proxy/main")
	dir := t.TempDir()
	for _, name := range []string{"kcp", "kcp-front-proxy"} {
		says := "#!/bin/sh\necho kcp version v1.36.0+kcp-" + release + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(says), 0o755))
	}
	b, err := stat(filepath.Join(dir, "kcp"))
	require.NoError(t, err)
	b.Version = release
	require.NoError(t, s.rt.layout.writeRecord(alpha, &processRecord{Binary: *b}))
	w, err := s.rt.layout.workloadOf(s.rt.topology.Component("front-proxy/main"))
	require.NoError(t, err)
	n, err := s.rt.needOf("front-proxy/main", w)
	require.NoError(t, err)
	n.runs, n.build = "", ""
	found, err := s.rt.options.Binaries.get(t.Context(), n)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "kcp-front-proxy"), found.Path)
	require.NotContains(t, s.rt.layout.binaryDirs("v0.28.0"), dir, "they run another release")
}

func TestBinaryOfAProcess(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	s := m.open(file())
	w, err := s.rt.layout.workloadOf(s.rt.topology.Component("front-proxy/main"))
	require.NoError(t, err)
	rec, err := s.rt.layout.record(w.name)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		change func(*binary)
		same   bool
	}{
		"the same release":   {func(b *binary) { b.Version = s.rt.release("front-proxy/main") }, true},
		"another release":    {func(b *binary) { b.Version = "v0.31.0" }, false},
		"an unknown release": {func(b *binary) { b.Version = "" }, false},
		"a replaced file":    {func(b *binary) { b.Version, b.Size = s.rt.release("front-proxy/main"), b.Size+1 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			changed := *rec
			tc.change(&changed.Binary)
			require.NoError(t, s.rt.layout.writeRecord(w.name, &changed))
			n, err := s.rt.needOf("front-proxy/main", w)
			require.NoError(t, err)
			require.Equal(t, tc.same, n.runs != "")
		})
	}
	require.NoError(t, s.rt.layout.writeRecord(w.name, rec))
}
