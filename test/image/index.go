package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The media types of the OCI image format.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor refers to a blob by its digest.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// index lists the images of several architectures, or what an archive has.
type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

// WriteIndex writes images that have one name, and each another architecture, as an archive with an OCI layout. It
// returns the digest of their index. The binaries of an image are in a directory of its architecture below a directory.
// The same binaries give the same bytes.
func WriteIndex(file, binDir string, images []Image) (string, error) {
	l := layout{}
	all := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, i := range images {
		d, err := l.addImage(i, filepath.Join(binDir, i.Architecture))
		if err != nil {
			return "", fmt.Errorf("add the image for %s: %w", i.Architecture, err)
		}
		all.Manifests = append(all.Manifests, d)
	}
	d, err := l.addJSON(typeIndex, all)
	if err != nil {
		return "", err
	}
	digest := d.Digest
	ref := images[0].Ref
	// containerd and Docker read the whole name, and others the tag.
	d.Annotations = map[string]string{
		"io.containerd.image.name":          ref,
		"org.opencontainers.image.ref.name": ref[strings.LastIndex(ref, ":")+1:],
	}
	entries, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{d}})
	if err != nil {
		return "", err
	}
	l.files = append(l.files,
		layoutFile{"index.json", entries}, layoutFile{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	if err := l.write(file); err != nil {
		return "", fmt.Errorf("write the images %s to %s: %w", ref, file, err)
	}
	return digest, nil
}

// layout are the files of an archive.
type layout struct{ files []layoutFile }

type layoutFile struct {
	name    string
	content []byte
}

// addImage adds an image, and returns the descriptor of its manifest.
func (l *layout) addImage(i Image, binDir string) (descriptor, error) {
	entries, err := i.layer(binDir)
	if err != nil {
		return descriptor{}, err
	}
	var compressed bytes.Buffer
	zip := gzip.NewWriter(&compressed)
	content := sha256.New()
	if err := errors.Join(writeLayer(io.MultiWriter(zip, content), entries), zip.Close()); err != nil {
		return descriptor{}, err
	}
	layer := l.add(typeLayer, compressed.Bytes())
	raw, err := i.configJSON(digestOf(content.Sum(nil)))
	if err != nil {
		return descriptor{}, err
	}
	d, err := l.addJSON(typeManifest, struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}{2, typeManifest, l.add(typeConfig, raw), []descriptor{layer}})
	d.Platform = &platform{i.Architecture, "linux"}
	return d, err
}

func (l *layout) addJSON(mediaType string, value any) (descriptor, error) {
	raw, err := json.Marshal(value)
	return l.add(mediaType, raw), err
}

// add adds a blob.
func (l *layout) add(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	d := descriptor{MediaType: mediaType, Digest: digestOf(sum[:]), Size: len(content)}
	l.files = append(l.files, layoutFile{"blobs/" + strings.Replace(d.Digest, ":", "/", 1), content})
	return d
}

func digestOf(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

// write writes the archive. It replaces the file when it is complete.
func (l *layout) write(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.Create(file + ".tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	out := tar.NewWriter(f)
	for _, e := range l.files {
		if err := out.WriteHeader(&tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.content))}); err != nil {
			return err
		}
		if _, err := out.Write(e.content); err != nil {
			return err
		}
	}
	if err := errors.Join(out.Close(), f.Close()); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}
