package download

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/kcpctl/kcpctl/internal/atomicfile"
)

// maxBinary keeps an archive from filling the disk, in bytes. kcp's binaries have about 120 MB.
const maxBinary = 1 << 30

// extract writes a binary of an archive to a path, at once: what is there is whole. In kcp's archives it is bin/<binary>.
func extract(archive *os.File, binary, to string) error {
	if err := seekStart(archive); err != nil {
		return err
	}
	z, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("it has no binary %s", binary)
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || path.Base(h.Name) != binary {
			continue
		}
		if h.Size > maxBinary {
			return fmt.Errorf("%s has %d bytes", h.Name, h.Size)
		}
		return atomicfile.WriteFrom(to, t, 0o755)
	}
}
