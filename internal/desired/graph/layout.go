package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// The dimensions of the drawing, in pixels.
const (
	boxHeight   = 74
	gapX, gapY  = 28, 62
	margin      = 24
	titleHeight = 34
	charWidth   = 7 // of the small text
	minBox      = 190
	// clearance is the least distance between an arrow and a box that it passes.
	clearance = 4
	// headLength is the length of an arrow head.
	headLength = 6
	// arc is the distance of the control points of an arrow within a row below it. It ends above the edge of the frame.
	arc = 28
)

// point is the upper left corner of a box, and the width of the box.
type point struct{ x, y, w int }

// drawing is the layout of a graph: clusters side by side, and a row for each layer across all of them. Arrows leave a
// box at the bottom and reach another at the top. They change their column only between rows, and pass rows in the
// gaps between boxes.
type drawing struct {
	boxes         map[topology.ID]point
	frames        []point
	rows          map[int]int // the y of each layer
	width, height int
	// used counts the arrows in each gap, so that they do not cover each other.
	used map[gap]int
}

// gap is the space in a row at a column.
type gap struct{ layer, x int }

func (g Graph) layout() *drawing {
	d := &drawing{boxes: map[topology.ID]point{}, rows: map[int]int{}, used: map[gap]int{}}
	var layers []int
	for _, b := range g.boxes() {
		layers = append(layers, b.Kind.Layer())
	}
	slices.Sort(layers)
	x := margin
	top := margin + titleHeight
	y := top + titleHeight
	for _, layer := range slices.Compact(layers) {
		d.rows[layer] = y
		y += boxHeight + gapY
	}
	d.height = y - gapY + 2*margin
	for _, c := range g.Clusters {
		byLayer := map[int][]Box{}
		inner := 0
		for _, b := range c.Boxes {
			layer := b.Kind.Layer()
			byLayer[layer] = append(byLayer[layer], b)
			inner = max(inner, rowWidth(byLayer[layer]))
		}
		for layer, row := range byLayer {
			at := x + margin + (inner-rowWidth(row))/2
			for _, b := range row {
				d.boxes[b.ID] = point{at, d.rows[layer], b.width()}
				at += b.width() + gapX
			}
		}
		d.frames = append(d.frames, point{x, top, inner + 2*margin})
		x += inner + 2*margin + gapX
	}
	d.width = x - gapX + margin
	return d
}

func rowWidth(row []Box) int {
	w := -gapX
	for _, b := range row {
		w += b.width() + gapX
	}
	return w
}

func (x Box) width() int {
	longest := len(x.Title) + 6
	for _, l := range x.Lines {
		longest = max(longest, len(l))
	}
	return max(minBox, longest*charWidth+32)
}

// The ends of a path.
const (
	start = "start"
	end   = "end"
)

// path returns the SVG path of an arrow, and the end of it that has the head. Paths go down: the path of an arrow to a
// higher row begins at its head. Arrows within a row are arcs below it.
func (d *drawing) path(a Arrow) (svg, head string) {
	from := d.boxes[a.From]
	to := d.boxes[a.To]
	if from.y == to.y {
		x := from.x + from.w/2
		toX := to.x + to.w/2
		y := from.y + boxHeight
		return fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x, y, x, y+arc, toX, y+arc, toX, y+headLength), end
	}
	head = end
	if from.y > to.y {
		head = start
		a.From, a.To, from, to = a.To, a.From, to, from
	}
	x := from.x + from.w/2
	y := from.y + boxHeight
	toX := to.x + to.w/2
	toY := to.y - headLength
	if head == start {
		y += headLength
		toY = to.y
	}
	var path strings.Builder
	fmt.Fprintf(&path, "M%d %d", x, y)
	curve := func(nextX, nextY int) {
		middle := (y + nextY) / 2
		fmt.Fprintf(&path, " C%d %d %d %d %d %d", x, middle, nextX, middle, nextX, nextY)
		x = nextX
		y = nextY
	}
	for layer := a.From.Kind().Layer() + 1; layer < a.To.Kind().Layer(); layer++ {
		row, ok := d.rows[layer]
		if !ok {
			continue
		}
		straight := x + (toX-x)*(row-y)/(toY-y)
		curve(d.pass(layer, straight), row-clearance)
		y = row + boxHeight + clearance
		fmt.Fprintf(&path, " L%d %d", x, y)
	}
	curve(toX, toY)
	return path.String(), head
}

// pass returns a free column in a row, as close as possible to a wanted one.
func (d *drawing) pass(layer, wanted int) int {
	var row []point
	for _, p := range d.boxes {
		if p.y == d.rows[layer] {
			row = append(row, p)
		}
	}
	candidates := []int{wanted}
	for _, p := range row {
		candidates = append(candidates, p.x-gapX/2, p.x+p.w+gapX/2)
	}
	free := slices.DeleteFunc(candidates, func(x int) bool {
		return slices.ContainsFunc(row, func(p point) bool { return x > p.x-clearance && x < p.x+p.w+clearance })
	})
	best := slices.MinFunc(free, func(a, b int) int {
		if byDistance := abs(a-wanted) - abs(b-wanted); byDistance != 0 {
			return byDistance
		}
		return a - b
	})
	// The arrows in a gap are next to each other: 0, 3, -3, 6, -6, and so on, within the gap.
	n := d.used[gap{layer, best}]
	d.used[gap{layer, best}]++
	shift := (n + 1) / 2 * 3 % (gapX/2 - clearance)
	if n%2 == 0 {
		shift = -shift
	}
	if slices.ContainsFunc(row, func(p point) bool {
		return best+shift > p.x-clearance && best+shift < p.x+p.w+clearance
	}) {
		return best
	}
	return best + shift
}

func abs(n int) int { return max(n, -n) }
