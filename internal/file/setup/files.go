package setup

import (
	"os"
	"path/filepath"
)

// Files reads the files that a setup file refers to.
type Files interface {
	// Match returns the names of the files that match a pattern, sorted. A pattern is relative to the setup file.
	Match(pattern string) ([]string, error)
	// Read returns the content of a file that Match returned.
	Read(name string) ([]byte, error)
}

// directory has the files relative to a directory.
type directory string

// Match implements Files.
func (d directory) Match(pattern string) ([]string, error) {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(string(d), pattern)
	}
	return filepath.Glob(pattern)
}

// Read implements Files.
func (d directory) Read(name string) ([]byte, error) { return os.ReadFile(name) }
