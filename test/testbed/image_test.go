package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/image"
)

func TestArchive(t *testing.T) {
	bed := &testbed{cache: t.TempDir(), log: newProgress(t.Output())}
	i := kcpImage(kcpSet("v0.32.3"))
	bins := bed.binDir(i.set)
	require.NoError(t, os.MkdirAll(bins, 0o755))
	for n, name := range i.Binaries {
		require.NoError(t, os.WriteFile(filepath.Join(bins, name), make([]byte, 511+n), 0o755)) // around the size of a block
	}
	file, err := bed.archive(t.Context(), i)
	require.NoError(t, err)
	files := readTar(t, file)

	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	require.NoError(t, json.Unmarshal(files["manifest.json"].content, &manifest))
	require.Equal(t, []string{"ghcr.io/kcp-dev/kcp:v0.32.3"}, manifest[0].RepoTags)
	var config struct {
		Config image.Config
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal(files[manifest[0].Config].content, &config))
	require.Equal(t, "65532:65532", config.Config.User)
	require.Equal(t, []string{"/kcp"}, config.Config.Entrypoint)
	layer := files[manifest[0].Layers[0]].content
	hash := sha256.Sum256(layer)
	require.Equal(t, []string{"sha256:" + hex.EncodeToString(hash[:])}, config.RootFS.DiffIDs)

	layerFile := filepath.Join(t.TempDir(), "layer.tar")
	require.NoError(t, os.WriteFile(layerFile, layer, 0o644))
	inside := readTar(t, layerFile)
	require.EqualValues(t, 0o1777, inside["tmp/"].header.Mode)
	require.EqualValues(t, 0o755, inside["kcp"].header.Mode)
	require.Len(t, inside["virtual-workspaces"].content, 514)
}

func TestArchiveIsWrittenAnewForNewBinaries(t *testing.T) {
	bed := &testbed{cache: t.TempDir(), log: newProgress(t.Output())}
	i := images()[0]
	program := filepath.Join(bed.binDir(i.set), "pause")
	require.NoError(t, os.MkdirAll(filepath.Dir(program), 0o755))
	require.NoError(t, os.WriteFile(program, []byte("old"), 0o755))
	file, err := bed.archive(t.Context(), i)
	require.NoError(t, err)
	before, err := os.Stat(file)
	require.NoError(t, err)

	_, err = bed.archive(t.Context(), i)
	require.NoError(t, err)
	same, err := os.Stat(file)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, same), "written again for nothing")

	newer := before.ModTime().Add(1e9)
	require.NoError(t, os.Chtimes(program, newer, newer))
	_, err = bed.archive(t.Context(), i)
	require.NoError(t, err)
	after, err := os.Stat(file)
	require.NoError(t, err)
	require.False(t, os.SameFile(before, after), "kept the archive of an older binary")
}

type tarFile struct {
	header  *tar.Header
	content []byte
}

func readTar(t *testing.T, file string) map[string]tarFile {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	files := map[string]tarFile{}
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		files[header.Name] = tarFile{header, content}
	}
}
