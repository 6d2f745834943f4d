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

// Tree prints a node and its descendants with aligned columns. On a terminal the last cell of a line that is too long
// continues on the next lines, which keep the branches of the tree.
func (s *Stream) Tree(root Node) {
	branches := s.branches(nil, root, "", "")
	var cells [][]string
	for _, b := range branches {
		cells = append(cells, b.cells)
	}
	widths, terminal := columnWidths(cells, 2), 0
	if s.TTY {
		terminal, _ = s.Size()
	}
	for _, b := range branches {
		for _, line := range s.folded(b, widths, terminal) {
			fmt.Fprintln(s, line)
		}
	}
}

type branch struct {
	cells []string
	// first is how the first cell begins, and below how lines below this one begin.
	first, below string
}

// minColumn is how narrow the last column of a tree may be. A narrower one begins below the first column.
const minColumn = 24

// folded returns a branch in lines of at most n columns, or in one line if n is 0.
func (s *Stream) folded(b branch, widths []int, n int) []string {
	whole := strings.TrimRight(aligned(b.cells, widths), " ")
	if n == 0 || width(whole) <= n {
		return []string{whole}
	}
	last := len(b.cells) - 1
	text := b.cells[last]
	head := aligned(append(slices.Clone(b.cells[:last]), ""), widths)
	if last == 0 {
		head = s.Dim(b.first)
		text = strings.TrimPrefix(text, head)
	}
	var out []string
	start, indent := width(head), width(b.below)
	if n-start < minColumn {
		out = append(out, strings.TrimRight(head, " "))
		start = indent + 2
		head = s.Dim(b.below) + strings.Repeat(" ", start-indent)
	}
	for _, line := range s.wrapStyled(text, n-start) {
		out = append(out, head+line)
		head = s.Dim(b.below) + strings.Repeat(" ", start-indent)
	}
	return out
}

// wrapStyled is wrap for text that may be in one colour.
func (s *Stream) wrapStyled(text string, n int) []string {
	code, rest, coloured := strings.Cut(text, "m")
	if !coloured || !strings.HasPrefix(code, "\x1b[") {
		return wrap(text, n)
	}
	lines := wrap(strings.TrimSuffix(rest, "\x1b[0m"), n)
	for i := range lines {
		lines[i] = s.sgr(strings.TrimPrefix(code, "\x1b["), lines[i])
	}
	return lines
}

// branches appends the line of a node with the prefix first, and the lines of its descendants with the prefix rest.
func (s *Stream) branches(lines []branch, n Node, first, rest string) []branch {
	cells := slices.Clone(n.Cells)
	cells[0] = s.Dim(first) + cells[0]
	below := rest
	if len(n.Children) > 0 {
		below += s.pick("│  ", "|  ")
	}
	lines = append(lines, branch{cells, first, below})
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
	widths := columnWidths(lines, gap)
	for _, cells := range lines {
		fmt.Fprintln(w, strings.TrimRight(aligned(cells, widths), " "))
	}
}

// columnWidths returns the widths of the columns of lines, gap spaces apart. The last cell of a line has no width.
func columnWidths(lines [][]string, gap int) []int {
	var widths []int
	for _, cells := range lines {
		for i, c := range cells[:max(0, len(cells)-1)] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(c)+gap)
		}
	}
	return widths
}

func aligned(cells []string, widths []int) string {
	var b strings.Builder
	for i, c := range cells {
		if i < len(cells)-1 {
			c = pad(c, widths[i])
		}
		b.WriteString(c)
	}
	return b.String()
}
