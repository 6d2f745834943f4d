package bundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/kcpctl/kcpctl/internal/kit/atomicfile"
)

// Archive is where a bundle is written.
type Archive struct {
	File string
	// Directory is the directory of all files in the archive.
	Directory string
	Now       time.Time
	// Contents returns the list of the files, which is the last file.
	Contents func() []byte
}

// Write collects all parts and writes the archive. An interrupted run leaves no file.
func (b *Bundle) Write(ctx context.Context, to Archive, parts []Part) error {
	r, w := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.CloseWithError(b.pack(ctx, w, to, parts))
	}()
	err := atomicfile.WriteFrom(to.File, r, 0o600)
	r.CloseWithError(err) // ends pack if the file cannot be written
	<-ended
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), removeIf(err == nil, to.File))
	}
	return err
}

// removeIf removes a file that was completed at the moment of an interrupt.
func removeIf(exists bool, file string) error {
	if !exists {
		return nil
	}
	return os.Remove(file)
}

// pack writes all parts as a compressed tar archive, and last the list of its files.
func (b *Bundle) pack(ctx context.Context, w io.Writer, to Archive, parts []Part) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	add := func(name string, text []byte) error {
		header := &tar.Header{
			Name: path.Join(to.Directory, name), Mode: 0o600, Size: int64(len(text)), ModTime: to.Now,
		}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		_, err := t.Write(text)
		return err
	}
	for _, p := range parts {
		text, err := b.collect(ctx, p)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b.Files = append(b.Files, File{p.File, p.About, err})
		if err := add(p.File, text); err != nil {
			return err
		}
	}
	if err := add("contents.txt", to.Contents()); err != nil {
		return err
	}
	return errors.Join(t.Close(), z.Close())
}

// collect returns the text of a part without secrets. If it fails, the text ends with the reason.
func (b *Bundle) collect(ctx context.Context, p Part) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	text, err := p.Text(limited)
	if err != nil && limited.Err() != nil {
		err = fmt.Errorf("not complete after %s: %w", Timeout, err)
	}
	if err != nil {
		text = fmt.Appendf(text, "error: %v\n", err)
	}
	return b.secrets.Text(text), err
}
