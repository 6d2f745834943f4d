package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/image"
)

// blob is what a descriptor says of a blob.
type blob struct {
	MediaType, Digest string
	Size              int
	Platform          struct{ Architecture, OS string }
	Annotations       map[string]string
}

// content returns a blob after its size and its digest are verified.
func content(t *testing.T, files map[string][]byte, b blob) []byte {
	t.Helper()
	raw := files["blobs/"+strings.Replace(b.Digest, ":", "/", 1)]
	require.Len(t, raw, b.Size)
	require.Equal(t, b.Digest, fmt.Sprintf("sha256:%x", sha256.Sum256(raw)))
	return raw
}

// read decodes a blob.
func read(t *testing.T, files map[string][]byte, b blob, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(content(t, files, b), into))
}

func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		require.True(t, h.ModTime.Unix() == 0 && h.Uid == 0 && h.Gid == 0, "the same bytes at any time, for any user: %+v", h)
		files[h.Name], err = io.ReadAll(in)
		require.NoError(t, err)
	}
}

func TestIndex(t *testing.T) {
	dir := t.TempDir()
	var images []image.Image
	for _, arch := range []string{"amd64", "arm64"} {
		images = append(images, image.Kcpctl("mirror:5000/kcpctl:v0.1.0", arch))
		require.NoError(t, os.Mkdir(filepath.Join(dir, arch), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, arch, "kcpctl"), []byte(arch), 0o600))
	}
	file := filepath.Join(dir, "new", "kcpctl.tar")
	digest, err := image.WriteIndex(file, dir, images)
	require.NoError(t, err)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	files := untar(t, bytes.NewReader(raw))
	require.JSONEq(t, `{"imageLayoutVersion":"1.0.0"}`, string(files["oci-layout"]))

	var top, all struct{ Manifests []blob }
	require.NoError(t, json.Unmarshal(files["index.json"], &top))
	require.Len(t, top.Manifests, 1)
	require.Equal(t, digest, top.Manifests[0].Digest)
	require.Equal(t, "v0.1.0", top.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
	require.Equal(t, "mirror:5000/kcpctl:v0.1.0", top.Manifests[0].Annotations["io.containerd.image.name"])
	read(t, files, top.Manifests[0], &all)
	require.Len(t, all.Manifests, 2)
	for n, arch := range []string{"amd64", "arm64"} {
		require.Equal(t, "linux/"+arch, all.Manifests[n].Platform.OS+"/"+all.Manifests[n].Platform.Architecture)
		var manifest struct {
			Config blob
			Layers []blob
		}
		read(t, files, all.Manifests[n], &manifest)
		var config struct {
			Architecture string
			Config       image.Config
			RootFS       struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}
		read(t, files, manifest.Config, &config)
		require.Equal(t, arch, config.Architecture)
		require.Equal(t, []string{"/kcpctl"}, config.Config.Entrypoint)
		require.Equal(t, image.NonRoot, config.Config.User)

		zip, err := gzip.NewReader(bytes.NewReader(content(t, files, manifest.Layers[0])))
		require.NoError(t, err)
		layer, err := io.ReadAll(zip)
		require.NoError(t, err)
		require.Equal(t, []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}, config.RootFS.DiffIDs)
		require.Equal(t, arch, string(untar(t, bytes.NewReader(layer))["kcpctl"]))
	}

	_, err = image.WriteIndex(file, t.TempDir(), images)
	require.ErrorContains(t, err, "add the image for amd64: ")
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, raw, after, "an archive is replaced when the new one is complete")
}
