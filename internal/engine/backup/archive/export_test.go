package archive

import (
	"context"
	"io/fs"
)

// ListIn returns the files of a target in any file system.
func ListIn(ctx context.Context, dir fs.FS, prefix string) ([]Entry, error) {
	return list(ctx, dir, prefix)
}
