package graph_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/desired/graph"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func drawn(t *testing.T, text string, states map[topology.ID]graph.State) graph.Graph {
	t.Helper()
	return graph.New(topologytest.Build(t, text), states)
}

func TestGolden(t *testing.T) {
	text, err := examples.Read("sharded")
	require.NoError(t, err)
	g := drawn(t, string(text), map[topology.ID]graph.State{"root-shard": graph.Ready, "shard/alpha": graph.NotReady})
	for name, got := range map[string]string{"txt": g.Text(), "mermaid": g.Mermaid(), "dot": g.DOT(), "svg": g.SVG()} {
		testutil.Golden(t, "sharded."+name, []byte(got))
	}
}

const severalClusters = `spec:
  external: {hostname: "kcp.example.com", port: 443}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  cacheServer: {cluster: eu, url: "https://cache.example.com:6443"}
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards: [{name: alpha, cluster: us, url: "https://alpha.example.com:6443"}]
  frontProxies: [{name: main, cluster: eu}]
`

// Every component is drawn once, in the cluster that it is placed on, and the picture is well-formed.
func TestEveryComponentIsDrawn(t *testing.T) {
	g := drawn(t, severalClusters, nil)
	require.Len(t, g.Clusters, 2)
	require.Equal(t, "cluster us, namespace kcp", g.Clusters[1].Title)
	var ids []string
	for _, b := range g.Clusters[1].Boxes {
		ids = append(ids, string(b.ID))
	}
	require.ElementsMatch(t, []string{"etcd/alpha", "shard/alpha"}, ids)
	svg := g.SVG()
	for _, c := range g.Clusters {
		for _, b := range c.Boxes {
			require.Equal(t, 1, strings.Count(svg, `class="name">`+b.Title+"<"), b.Title)
		}
	}
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}
}

// All formats have the same edges, of each example, also on this machine.
func TestSameEdgesInAllFormats(t *testing.T) {
	for _, name := range examples.Names() {
		text, err := examples.Read(name)
		require.NoError(t, err)
		file, err := setup.Load(setup.Stdin, strings.NewReader(string(text)))
		require.NoError(t, err)
		for _, top := range []*topology.Topology{topology.Build(file.Setup), topology.BuildLocal(file.Setup, "/state", map[string]int32{})} {
			g := graph.New(top, nil)
			for _, g := range []graph.Graph{g, g.Fold()} {
				require.NotEmpty(t, g.Arrows, name)
				require.Equal(t, len(g.Arrows), len(regexp.MustCompile(`(?m)^    \S`).FindAllString(g.Text(), -1)), "text of %s", name)
				require.Equal(t, len(g.Arrows), strings.Count(g.Mermaid(), "-->|"), "mermaid of %s", name)
				require.Equal(t, len(g.Arrows), strings.Count(g.DOT(), " -> "), "dot of %s", name)
				svg := g.SVG()
				require.Equal(t, len(g.Arrows), strings.Count(svg, `class="arrow"`), "svg of %s", name)
				require.NotContains(t, svg, `d=""`)
				require.NotContains(t, svg, `class="small"></text>`, "svg of %s", name)
				require.NotContains(t, svg, `fill=""`, "a kind has no colour in %s", name)
				require.NotContains(t, svg, "#cf222e", "%s has the colour of errors", name)
				require.NotContains(t, g.DOT(), `label="";`, "dot of %s", name)
			}
		}
	}
}

// Many shards that differ only in their name have one box, and so do their etcds.
func TestFold(t *testing.T) {
	var text strings.Builder
	text.WriteString("spec:\n  cacheServer: {}\n  etcd: {managed: {replicas: 3}}\n  shards:\n")
	for i := range 40 {
		fmt.Fprintf(&text, "  - {name: s%d}\n", i)
	}
	text.WriteString("  - {name: large, replicas: 3}\n")
	g := drawn(t, text.String(), map[topology.ID]graph.State{"shard/s7": graph.NotReady})
	folded := g.Fold()
	for name, got := range map[string]string{"txt": folded.Text(), "mermaid": folded.Mermaid(), "dot": folded.DOT(), "svg": folded.SVG()} {
		testutil.Golden(t, "folded."+name, []byte(got))
	}
	require.Contains(t, g.Text(), "shard/s39", "the graph itself is not changed")

	few := drawn(t, severalClusters, nil)
	require.Equal(t, few, few.Fold())
}
