package graph

import (
	"fmt"
	"html"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

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
