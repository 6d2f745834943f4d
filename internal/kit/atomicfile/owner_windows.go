package atomicfile

import (
	"io/fs"
	"os"
)

// keepOwner does nothing: administrators work as their own user.
func keepOwner(*os.File, fs.FileInfo, fs.FileInfo) {}
