package graph_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
)

// rect is a box of a drawing, and curve a cubic Bézier curve or a straight line of an arrow.
type (
	rect  struct{ x, y, w, h float64 }
	xy    struct{ x, y float64 }
	curve [4]xy
)

func (r rect) contains(p xy) bool { return p.x > r.x && p.x < r.x+r.w && p.y > r.y && p.y < r.y+r.h }

func (c curve) at(t float64) xy {
	u := 1 - t
	at := func(a, b, c, d float64) float64 { return u*u*u*a + 3*u*u*t*b + 3*u*t*t*c + t*t*t*d }
	return xy{at(c[0].x, c[1].x, c[2].x, c[3].x), at(c[0].y, c[1].y, c[2].y, c[3].y)}
}

// shapes returns the boxes of a drawing, and the curves of its arrows by their title.
func shapes(t *testing.T, svg string) (boxes []rect, arrows map[string][]curve) {
	t.Helper()
	arrows = map[string][]curve{}
	var path string
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return boxes, arrows
		}
		require.NoError(t, err)
		switch tok := tok.(type) {
		case xml.StartElement:
			attr := map[string]string{}
			for _, a := range tok.Attr {
				attr[a.Name.Local] = a.Value
			}
			switch attr["class"] {
			case "box":
				boxes = append(boxes, rect{number(t, attr["x"]), number(t, attr["y"]), number(t, attr["width"]), number(t, attr["height"])})
			case "arrow":
				path = attr["d"]
			}
		case xml.CharData:
			if path != "" {
				arrows[string(tok)], path = curves(t, path), ""
			}
		}
	}
}

func curves(t *testing.T, path string) []curve {
	t.Helper()
	words := strings.Fields(path)
	next := func() xy {
		require.GreaterOrEqual(t, len(words), 2, path)
		p := xy{number(t, strings.TrimLeft(words[0], "MCL")), number(t, words[1])}
		words = words[2:]
		return p
	}
	var out []curve
	require.True(t, strings.HasPrefix(path, "M"))
	for at := next(); len(words) > 0; {
		var c curve
		if words[0][0] == 'C' {
			c = curve{at, next(), next(), next()}
		} else {
			require.EqualValues(t, 'L', words[0][0], path)
			to := next()
			c = curve{at, at, to, to}
		}
		out, at = append(out, c), c[3]
	}
	return out
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(s, 64)
	require.NoError(t, err)
	return n
}

// In a drawing no arrow passes under a box, and no two boxes overlap.
func TestNoArrowUnderABox(t *testing.T) {
	setups := map[string]string{"several clusters": severalClusters, "wide": wide(9)}
	for _, name := range examples.Names() {
		text, err := examples.Read(name)
		require.NoError(t, err)
		setups[name] = string(text)
	}
	for name, text := range setups {
		t.Run(name, func(t *testing.T) {
			boxes, arrows := shapes(t, drawn(t, text, nil).SVG())
			require.NotEmpty(t, boxes)
			require.NotEmpty(t, arrows)
			for title, all := range arrows {
				for _, c := range all {
					for i := range 101 {
						p := c.at(float64(i) / 100)
						for _, b := range boxes {
							require.False(t, b.contains(p), "%s passes under the box at %v", title, b)
						}
					}
				}
			}
			for i, a := range boxes {
				for _, b := range boxes[i+1:] {
					require.False(t, a.x < b.x+b.w && b.x < a.x+a.w && a.y < b.y+b.h && b.y < a.y+a.h, "%v overlaps %v", a, b)
				}
			}
		})
	}
}

// wide returns a setup with n shards, whose servers of virtual workspaces make the first row wide as well.
func wide(n int) string {
	text := "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\nspec:\n  cacheServer: {etcd: {managed: {}}}\n  shards:\n"
	servers := "  virtualWorkspaces:\n"
	for i := range n {
		text += fmt.Sprintf("  - {name: s%d}\n", i)
		servers += fmt.Sprintf("  - {name: v%d, shard: s%d}\n", i, i)
	}
	return text + servers
}
