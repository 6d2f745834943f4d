package setup

import "strings"

// position is a place in a file, counted from 1.
type position struct{ line, column int }

// positions are where the fields of a file are, by path. The empty path is the document.
type positions map[string]position

// of finds the position of a field, or of the nearest one around it; exact tells which.
func (p positions) of(path string) (pos position, exact bool) {
	for at := path; at != ""; at = parent(at) {
		if pos, ok := p[at]; ok {
			return pos, at == path
		}
	}
	return p[""], path == ""
}

// parent cuts the last segment off a path: .name or [key]. A key may hold dots.
func parent(path string) string {
	if strings.HasSuffix(path, "]") {
		return path[:max(strings.LastIndexByte(path, '['), 0)]
	}
	return path[:max(strings.LastIndexByte(path, '.'), 0)]
}
