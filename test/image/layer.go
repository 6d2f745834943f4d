package image

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// layerEntry is a directory in the layer of an image, or a file if it has a source.
type layerEntry struct {
	header tar.Header
	source string
}

// layer returns the content of the image: the binaries, their parent directories, and a world-writable /tmp.
func (i Image) layer(binDir string) ([]layerEntry, error) {
	entries := []layerEntry{directory("tmp", 0o1777)}
	for _, dir := range []string{i.Dir, i.Config.WorkingDir} {
		above := ""
		for _, part := range strings.FieldsFunc(dir, func(r rune) bool { return r == '/' }) {
			above = path.Join(above, part)
			entries = append(entries, directory(above, 0o755))
		}
	}
	for _, name := range i.Binaries {
		source := filepath.Join(binDir, name)
		info, err := os.Stat(source)
		if err != nil {
			return nil, err
		}
		entries = append(entries, layerEntry{tar.Header{
			Typeflag: tar.TypeReg, Name: strings.TrimPrefix(path.Join(i.Dir, name), "/"), Mode: 0o755, Size: info.Size(),
		}, source})
	}
	return entries, nil
}

func directory(name string, mode int64) layerEntry {
	return layerEntry{header: tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}}
}

// layerSize returns the size of the output of writeLayer, which the archive needs before the layer.
func layerSize(entries []layerEntry) int64 {
	const block = 512
	size := int64(2 * block) // the end mark
	for _, e := range entries {
		size += block + (e.header.Size+block-1)/block*block
	}
	return size
}

func writeLayer(w io.Writer, entries []layerEntry) error {
	layer := tar.NewWriter(w)
	for _, e := range entries {
		if err := layer.WriteHeader(&e.header); err != nil {
			return err
		}
		if e.source == "" {
			continue
		}
		if err := copyFile(layer, e.source); err != nil {
			return fmt.Errorf("add %s: %w", e.source, err)
		}
	}
	return layer.Close()
}

func copyFile(w io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
