package ui

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Table prints rows under a header, as kubectl does. Cells may have colours.
func Table(w io.Writer, header []string, rows ...[]string) {
	lines := rows
	if len(header) > 0 {
		lines = append([][]string{header}, rows...)
	}
	columns(w, lines, 3)
}

// Node is a line of a tree with its children.
type Node struct {
	// Cells are the columns, at least one. The first is indented.
	Cells    []string
	Children []Node
}

// Tree prints a node and its descendants with aligned columns.
func (s *Stream) Tree(root Node) {
	columns(s, s.branches(nil, root, "", ""), 2)
}

// branches appends the line of a node with the prefix first, and the lines of its descendants with the prefix rest.
func (s *Stream) branches(lines [][]string, n Node, first, rest string) [][]string {
	cells := slices.Clone(n.Cells)
	cells[0] = s.Dim(first) + cells[0]
	lines = append(lines, cells)
	for i, child := range n.Children {
		branch, below := s.pick("├─ ", "|- "), s.pick("│  ", "|  ")
		if i == len(n.Children)-1 {
			branch, below = s.pick("└─ ", "`- "), "   "
		}
		lines = s.branches(lines, child, rest+branch, rest+below)
	}
	return lines
}

// columns prints lines with aligned cells, gap spaces apart. The last cell of a line is not aligned.
func columns(w io.Writer, lines [][]string, gap int) {
	var widths []int
	for _, cells := range lines {
		for i, c := range cells[:max(0, len(cells)-1)] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(c)+gap)
		}
	}
	for _, cells := range lines {
		var b strings.Builder
		for i, c := range cells {
			if i < len(cells)-1 {
				c = pad(c, widths[i])
			}
			b.WriteString(c)
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}
