// Package image writes images that have static binaries and nothing else, without Docker and without a registry:
// archives for docker load, podman load and ctr images import, and archives of several architectures with an OCI
// layout.
package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// NonRoot is the user and the group of images whose programs need no rights.
const NonRoot = "65532:65532"

// Image is an image from scratch for Linux.
type Image struct {
	// Ref is the name of the image with its tag.
	Ref string
	// Architecture is that of the binaries, as Go names it.
	Architecture string
	// Dir is the directory of the binaries in the image.
	Dir string
	// Binaries are the names of the binaries.
	Binaries []string
	Config   Config
}

// Config has the fields of an image configuration that are used.
type Config struct {
	User       string            `json:",omitempty"`
	Env        []string          `json:",omitempty"`
	Entrypoint []string          `json:",omitempty"`
	Cmd        []string          `json:",omitempty"`
	WorkingDir string            `json:",omitempty"`
	Labels     map[string]string `json:",omitempty"`
}

// File returns the name of the image as a file name.
func (i Image) File() string { return strings.NewReplacer("/", "_", ":", "_").Replace(i.Ref) }

// layerName and configName are unique for each image: containerd locks by the names in an archive.
func (i Image) layerName() string  { return i.File() + ".layer.tar" }
func (i Image) configName() string { return i.File() + ".config.json" }

// Write writes the archive with the binaries in a directory. It replaces the file when it is complete.
func (i Image) Write(file, binDir string) error {
	if err := i.write(file, binDir); err != nil {
		return fmt.Errorf("write the image %s to %s: %w", i.Ref, file, err)
	}
	return nil
}

// write writes one uncompressed layer, the configuration with its hash, and the manifest of both.
func (i Image) write(file, binDir string) error {
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
	if err := i.writeMetadata(out, digestOf(hash.Sum(nil))); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

// configJSON returns the configuration of an image with one layer.
func (i Image) configJSON(layer string) ([]byte, error) {
	config := i.Config
	config.Env = append(slices.Clone(config.Env), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	type rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	return json.Marshal(struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
		Config       Config `json:"config"`
		RootFS       rootFS `json:"rootfs"`
	}{i.Architecture, "linux", config, rootFS{"layers", []string{layer}}})
}

// writeMetadata writes the configuration and the manifest of an image with one layer.
func (i Image) writeMetadata(out *tar.Writer, layer string) error {
	configJSON, err := i.configJSON(layer)
	if err != nil {
		return err
	}
	type manifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	manifestJSON, err := json.Marshal([]manifest{{i.configName(), []string{i.Ref}, []string{i.layerName()}}})
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

// Kcpctl returns the image of kcpctl, which runs the controller and the syncers of transparent multi-cluster, and
// CronJobs. Registries show the repository of its label.
func Kcpctl(ref, architecture string) Image {
	return Image{
		Ref: ref, Architecture: architecture, Dir: "/", Binaries: []string{"kcpctl"},
		Config: Config{User: NonRoot, Entrypoint: []string{"/kcpctl"}, Labels: map[string]string{
			"org.opencontainers.image.source": "https://github.com/kcpctl/kcpctl",
		}},
	}
}
