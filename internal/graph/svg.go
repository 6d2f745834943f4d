package graph

import (
	"fmt"
	"html"
	"strings"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// The measures of the drawing, in pixels.
const (
	boxHeight   = 74
	gapX, gapY  = 28, 62
	margin      = 24
	titleHeight = 34
	charWidth   = 7 // of the small text
	minBox      = 190
)

// point is the upper left corner of a box.
type point struct{ x, y, w int }

// SVG returns the graph as a picture that needs no fonts or styles from elsewhere, on a light or a dark page.
func (g Graph) SVG() string {
	places, frames, width, height := g.layout()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" role="img" aria-label="%s">`+"\n",
		width, height, width, height, html.EscapeString(g.Title))
	b.WriteString(svgStyle)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="12" class="page"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="%d" class="title">%s</text>`+"\n", margin, margin+10, html.EscapeString(g.Title))
	for i, f := range frames {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="10" class="frame"/>`+"\n", f.x, f.y, f.w, height-f.y-margin)
		fmt.Fprintf(&b, `<text x="%d" y="%d" class="small">%s</text>`+"\n", f.x+12, f.y+20, html.EscapeString(g.Clusters[i].Title))
	}
	for _, a := range g.Arrows {
		from, to := places[a.From], places[a.To]
		if from.y < to.y { // arrows between neighbours of one layer say little and cross everything
			x1, y1, x2, y2 := from.x+from.w/2, from.y+boxHeight, to.x+to.w/2, to.y-6
			fmt.Fprintf(&b, `<path d="M%d %d C%d %d %d %d %d %d" class="arrow" marker-end="url(#head)"><title>%s %s %s</title></path>`+"\n",
				x1, y1, x1, (y1+y2)/2, x2, (y1+y2)/2, x2, y2, html.EscapeString(string(a.From)), a.Label, html.EscapeString(string(a.To)))
		}
	}
	for _, box := range g.boxes() {
		box.svg(&b, places[box.ID])
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
<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" class="head"/></marker></defs>
`

// kindColours tell the kinds of components apart.
func kindColours() map[topology.Kind]string {
	return map[topology.Kind]string{
		topology.FrontProxy: "#0969da", topology.VirtualWorkspaces: "#8250df", topology.RootShard: "#bc4c00",
		topology.Shard: "#bf8700", topology.CacheServer: "#1b7c83", topology.Etcd: "#57606a",
	}
}

func (x Box) svg(b *strings.Builder, p point) {
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="8" class="box"/>`+"\n", p.x, p.y, p.w, boxHeight)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="5" height="%d" rx="2.5" fill="%s"/>`+"\n", p.x, p.y+8, boxHeight-16, kindColours()[x.Kind])
	fmt.Fprintf(b, `<text x="%d" y="%d" class="name">%s</text>`+"\n", p.x+16, p.y+24, html.EscapeString(x.Title))
	if x.State != Unknown {
		fmt.Fprintf(b, `<circle cx="%d" cy="%d" r="5" fill="%s"><title>%s</title></circle>`+"\n", p.x+p.w-16, p.y+19, x.State.colour(), x.State.words()[0])
	}
	for i, line := range x.Lines {
		fmt.Fprintf(b, `<text x="%d" y="%d" class="small">%s</text>`+"\n", p.x+16, p.y+42+i*15, html.EscapeString(line))
	}
}

// layout puts the clusters side by side, and in each a row per layer.
func (g Graph) layout() (places map[topology.ID]point, frames []point, width, height int) {
	places = map[topology.ID]point{}
	x, top, deepest := margin, margin+titleHeight, 0
	for _, c := range g.Clusters {
		rows := map[int][]Box{}
		for _, box := range c.Boxes {
			rows[box.Layer] = append(rows[box.Layer], box)
		}
		inner := 0
		for _, row := range rows {
			inner = max(inner, rowWidth(row))
		}
		y := top + titleHeight
		for layer := range 4 {
			row := rows[layer]
			if len(row) == 0 {
				continue
			}
			at := x + margin + (inner-rowWidth(row))/2
			for _, box := range row {
				places[box.ID] = point{at, y, box.width()}
				at += box.width() + gapX
			}
			y += boxHeight + gapY
		}
		frames = append(frames, point{x, top, inner + 2*margin})
		x += inner + 2*margin + gapX
		deepest = max(deepest, y-gapY+margin)
	}
	return places, frames, x - gapX + margin, deepest + margin
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
