package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// image is an image with static binaries of one build set.
type image struct {
	ref      string
	set      buildSet
	dir      string // directory of the binaries in the image
	binaries []string
	config   imageConfig
	early    bool // the node itself needs it
}

// imageConfig has the fields of an image configuration that the testbed uses.
type imageConfig struct {
	User       string   `json:",omitempty"`
	Env        []string `json:",omitempty"`
	Entrypoint []string `json:",omitempty"`
	Cmd        []string `json:",omitempty"`
	WorkingDir string   `json:",omitempty"`
}

const (
	pauseImage   = "kcpctl.dev/testbed/pause:v1"
	coreDNSImage = "registry.k8s.io/coredns/coredns:v1.14.7"
	nonroot      = "65532:65532"
)

// images returns the images of a node, those that the node itself needs first. They have the names of the upstream images, so
// that manifests need no pull.
func images() []image {
	return []image{
		{ref: pauseImage, early: true, set: pauseSet(), dir: "/", binaries: []string{"pause"},
			config: imageConfig{User: nonroot, Entrypoint: []string{"/pause"}}},
		{ref: coreDNSImage, early: true, set: coreDNSSet(), dir: "/", binaries: []string{"coredns"},
			config: imageConfig{User: nonroot, Entrypoint: []string{"/coredns"}, WorkingDir: "/"}},
		{ref: "gcr.io/etcd-development/etcd:v3.6.16", set: etcdSet(), dir: "/usr/local/bin", binaries: []string{"etcd", "etcdctl"},
			config: imageConfig{Cmd: []string{"/usr/local/bin/etcd"}, WorkingDir: "/var/etcd"}},
		kcpImage("v0.32.3"),
		kcpImage("v0.32.2"),
		agentImage(),
	}
}

func kcpImage(version string) image {
	return image{
		ref: "ghcr.io/kcp-dev/kcp:" + version, set: kcpSet(version), dir: "/",
		binaries: []string{"kcp", "kcp-front-proxy", "cache-server", "virtual-workspaces"},
		config:   imageConfig{User: nonroot, Entrypoint: []string{"/kcp"}, WorkingDir: "/"},
	}
}

func agentImage() image {
	s := agentSet()
	return image{
		ref: "ghcr.io/kcp-dev/api-syncagent:" + s.version, set: s, dir: "/usr/local/bin", binaries: s.names(),
		config: imageConfig{User: nonroot, Entrypoint: []string{"/usr/local/bin/api-syncagent"}},
	}
}

// short returns the name for progress output: kcp:v0.32.3, or pause, which has only one version.
func (i image) short() string { return strings.TrimSuffix(path.Base(i.ref), ":v1") }

// layerName and configName are unique for each image: containerd locks by the names in an archive.
func (i image) layerName() string  { return i.set.key() + ".layer.tar" }
func (i image) configName() string { return i.set.key() + ".config.json" }

// archive returns the path of the docker archive of the image. It writes the archive if it is missing or older than a binary.
func (t *testbed) archive(ctx context.Context, i image) (string, error) {
	file := filepath.Join(t.cache, "images", strings.NewReplacer("/", "_", ":", "_").Replace(i.ref)+".tar")
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
	for _, b := range i.binaries {
		info, err := os.Stat(filepath.Join(t.binDir(i.set), b))
		if err != nil {
			return "", err
		}
		stale = stale || info.ModTime().After(written)
	}
	if !stale {
		return file, nil
	}
	if err := i.write(file, t.binDir(i.set)); err != nil {
		return "", fmt.Errorf("write %s: %w", file, err)
	}
	return file, nil
}

// write writes the archive: one uncompressed layer, the configuration with its hash, and the manifest of both.
func (i image) write(file, binDir string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.Create(file + ".tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	entries, err := i.layer(binDir)
	if err != nil {
		return err
	}
	out := tar.NewWriter(f)
	if err := out.WriteHeader(&tar.Header{Name: i.layerName(), Mode: 0o644, Size: layerSize(entries)}); err != nil {
		return err
	}
	hash := sha256.New()
	if err := writeLayer(io.MultiWriter(out, hash), entries); err != nil {
		return err
	}
	if err := i.writeMetadata(out, "sha256:"+hex.EncodeToString(hash.Sum(nil))); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

// writeMetadata writes the configuration and the manifest of an image with one layer.
func (i image) writeMetadata(out *tar.Writer, layer string) error {
	config := i.config
	config.Env = append(slices.Clone(config.Env), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	type rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	configJSON, err := json.Marshal(struct {
		Architecture string      `json:"architecture"`
		OS           string      `json:"os"`
		Config       imageConfig `json:"config"`
		RootFS       rootFS      `json:"rootfs"`
	}{runtime.GOARCH, "linux", config, rootFS{"layers", []string{layer}}})
	if err != nil {
		return err
	}
	type manifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	manifestJSON, err := json.Marshal([]manifest{{i.configName(), []string{i.ref}, []string{i.layerName()}}})
	if err != nil {
		return err
	}
	for _, e := range []struct {
		name    string
		content []byte
	}{{i.configName(), configJSON}, {"manifest.json", manifestJSON}} {
		if err := out.WriteHeader(&tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.content))}); err != nil {
			return err
		}
		if _, err := out.Write(e.content); err != nil {
			return err
		}
	}
	return nil
}
