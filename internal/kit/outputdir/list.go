package outputdir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// list contains the SHA-256 sums of the written files, by path. A file that is being replaced has two. It is stored in
// the format of sha256sum.
type list map[string][]string

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (l list) add(path string, sums ...string) {
	for _, sum := range sums {
		if !slices.Contains(l[path], sum) {
			l[path] = append(l[path], sum)
		}
	}
}

func (l list) union(o list) list {
	out := list{}
	for _, from := range []list{l, o} {
		for path, sums := range from {
			out.add(path, sums...)
		}
	}
	return out
}

func (l list) paths() []string { return slices.Sorted(maps.Keys(l)) }

func (l list) encode() []byte {
	var out bytes.Buffer
	for _, path := range l.paths() {
		for _, sum := range slices.Sorted(slices.Values(l[path])) {
			fmt.Fprintf(&out, "%s  %s\n", sum, path)
		}
	}
	return out.Bytes()
}

// readList reads the list of the previous call. It is empty if the file does not exist. readList fails on lines that
// Write does not write, because the list determines which files may be removed.
func readList(file string) (list, error) {
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return list{}, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := list{}
	for line := range strings.Lines(string(data)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if _, err := hex.DecodeString(sum); !ok || err != nil || len(sum) != 2*sha256.Size {
			return nil, fmt.Errorf("invalid line %q", line)
		}
		if !filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name || name == "." {
			return nil, fmt.Errorf("path %q is outside of the directory", name)
		}
		out.add(name, sum)
	}
	return out, nil
}
