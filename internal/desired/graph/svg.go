package graph

import (
	"fmt"
	"html"
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

// SVG returns the graph as an image without external fonts or styles, for light and dark pages.
func (g Graph) SVG() string {
	d := g.layout()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" `+
		`font-family="system-ui, sans-serif" role="img" aria-label="%s">`+"\n",
		d.width, d.height, d.width, d.height, html.EscapeString(g.Title))
	b.WriteString(svgStyle)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="12" class="page"/>`+"\n", d.width, d.height)
	fmt.Fprintf(&b, `<text x="%d" y="%d" class="title">%s</text>`+"\n", margin, margin+10, html.EscapeString(g.Title))
	for i, f := range d.frames {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="10" class="frame"/>`+"\n", f.x, f.y, f.w,
			d.height-f.y-margin)
		fmt.Fprintf(&b, `<text x="%d" y="%d" class="small">%s</text>`+"\n", f.x+12, f.y+20,
			html.EscapeString(g.Clusters[i].Title))
	}
	for _, a := range g.Arrows {
		path, marker := d.path(a)
		fmt.Fprintf(&b, `<path d="%s" class="arrow" marker-%s="url(#head)"><title>%s %s %s</title></path>`+"\n",
			path, marker, html.EscapeString(string(a.From)), a.Label, html.EscapeString(string(a.To)))
	}
	for _, box := range g.boxes() {
		box.svg(&b, d.boxes[box.ID])
	}
	b.WriteString("</svg>\n")
	return b.String()
}

const svgStyle = `<style>
.page{fill:#ffffff}.frame{fill:#f6f8fa;stroke:#d0d7de}.title{font-size:17px;font-weight:600;fill:#1f2328}
.name{font-size:14px;font-weight:600;fill:#1f2328}.small{font-size:11px;fill:#57606a}.box{fill:#ffffff;stroke:#d0d7de}
.arrow{fill:none;stroke:#8c959f;stroke-width:1.4}.head{fill:#8c959f}
@media (prefers-color-scheme: dark){.page{fill:#0d1117}.frame{fill:#161b22;stroke:#30363d}.title,.name{fill:#e6edf3}
.small{fill:#8d96a0}.box{fill:#0d1117;stroke:#30363d}}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" class="head"/></marker></defs>
`

// kindColour returns the colour of a kind that is drawn. The red and the green of states are not among the colours.
func kindColour(k topology.Kind) string {
	return map[topology.Kind]string{
		topology.Etcd: "#57606a", topology.CacheServer: "#1b7c83", topology.RootShard: "#bc4c00",
		topology.Shard:      "#bf8700",
		topology.FrontProxy: "#0969da", topology.VirtualWorkspaces: "#8250df", topology.Workspace: "#bf3989",
		topology.Agent: "#6639ba", topology.Workloads: "#0a3069", topology.Physical: "#7d4e00",
	}[k]
}

func (x Box) svg(b *strings.Builder, p point) {
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="8" class="box"/>`+"\n", p.x, p.y, p.w, boxHeight)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="5" height="%d" rx="2.5" fill="%s"/>`+"\n",
		p.x, p.y+8, boxHeight-16, kindColour(x.Kind))
	fmt.Fprintf(b, `<text x="%d" y="%d" class="name">%s</text>`+"\n", p.x+16, p.y+24, html.EscapeString(x.Title))
	if x.State != Unknown {
		fmt.Fprintf(b, `<circle cx="%d" cy="%d" r="5" fill="%s"><title>%s</title></circle>`+"\n",
			p.x+p.w-16, p.y+19, x.State.colour(), x.State.words()[0])
	}
	for i, line := range x.Lines {
		fmt.Fprintf(b, `<text x="%d" y="%d" class="small">%s</text>`+"\n", p.x+16, p.y+42+i*15, html.EscapeString(line))
	}
}
