package main

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/test/image"
)

// setImage is an image with binaries of one build set.
type setImage struct {
	image.Image

	set   buildSet
	early bool // the node itself needs it
}

const (
	pauseImage   = "kcpctl.dev/testbed/pause:v1"
	coreDNSImage = "registry.k8s.io/coredns/coredns:v1.14.7"
	kcpctlImage  = "kcpctl.dev/testbed/kcpctl:tested"
)

// images returns the images of a node, those that the node itself needs first. They have the names of the upstream
// images, so that manifests need no pull.
func images() []setImage {
	return []setImage{
		early(newImage(pauseImage, pauseSet(), "/", image.Config{User: image.NonRoot, Entrypoint: []string{"/pause"}})),
		early(newImage(coreDNSImage, coreDNSSet(), "/", image.Config{User: image.NonRoot, Entrypoint: []string{"/coredns"}, WorkingDir: "/"})),
		newImage("gcr.io/etcd-development/etcd:v3.6.16", etcdSet(), "/usr/local/bin",
			image.Config{Cmd: []string{"/usr/local/bin/etcd"}, WorkingDir: "/var/etcd"}),
		kcpImage(kcpSet("v0.32.3")),
		kcpImage(olderKcpSet()),
		agentImage(),
		newImage("quay.io/prometheus/prometheus:v3.13.1", prometheusSet(), "/bin",
			image.Config{User: image.NonRoot, Entrypoint: []string{"/bin/prometheus"}, WorkingDir: "/tmp"}),
		newImage("kcpctl.dev/testbed/dial:v1", dialSet(), "/", image.Config{User: image.NonRoot, Entrypoint: []string{"/dial"}}),
	}
}

// newImage returns an image with binaries of a set, or with all of them if none is named.
func newImage(ref string, s buildSet, dir string, config image.Config, binaries ...string) setImage {
	if len(binaries) == 0 {
		binaries = s.names()
	}
	return setImage{Image: image.Image{Ref: ref, Architecture: runtime.GOARCH, Dir: dir, Binaries: binaries, Config: config}, set: s}
}

func early(i setImage) setImage {
	i.early = true
	return i
}

func kcpImage(s buildSet) setImage {
	return newImage("ghcr.io/kcp-dev/kcp:"+s.version, s, "/",
		image.Config{User: image.NonRoot, Entrypoint: []string{"/kcp"}, WorkingDir: "/"},
		"kcp", "kcp-front-proxy", "cache-server", "virtual-workspaces")
}

func agentImage() setImage {
	s := agentSet()
	return newImage("ghcr.io/kcp-dev/api-syncagent:"+s.version, s, "/usr/local/bin",
		image.Config{User: image.NonRoot, Entrypoint: []string{"/usr/local/bin/api-syncagent"}})
}

// webImages are two releases of a small HTTP server for workloads, which say in their answers which one they are.
func webImages() []setImage {
	var out []setImage
	for _, release := range []string{"v1", "v2"} {
		out = append(out, newImage("kcpctl.dev/testbed/web:"+release, webSet(), "/",
			image.Config{User: image.NonRoot, Entrypoint: []string{"/web"}, Env: []string{"RELEASE=" + release}}))
	}
	return out
}

// short returns the name for progress output: kcp:v0.32.3, or pause, which has only one version.
func (i setImage) short() string { return strings.TrimSuffix(path.Base(i.Ref), ":v1") }

// archive returns the path of the archive of the image. It writes the archive if it is missing or older than a binary.
func (t *testbed) archive(ctx context.Context, i setImage) (string, error) {
	file := t.imageFile(i.Image)
	unlock, err := t.lock(ctx, filepath.Base(file))
	if err != nil {
		return "", err
	}
	defer unlock()
	var written time.Time
	if info, err := os.Stat(file); err == nil {
		written = info.ModTime()
	}
	stale := false
	for _, b := range i.Binaries {
		info, err := os.Stat(filepath.Join(t.binDir(i.set), b))
		if err != nil {
			return "", err
		}
		stale = stale || info.ModTime().After(written)
	}
	if !stale {
		return file, nil
	}
	return file, i.Write(file, t.binDir(i.set))
}

// imageFile returns the path of the archive of an image.
func (t *testbed) imageFile(i image.Image) string {
	return filepath.Join(t.cache, "images", i.File()+".tar")
}
