package main

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const (
	start = `<html><link href="a.css" rel="stylesheet"><script src="a.js"></script>
<nav class="md-nav md-nav--primary"><a href=".">Home</a><a href="shards/">Shards</a></nav>
<h1 id="top">Start</h1><a href="shards/#drain">Drain</a> <a href="https://example.com/x">elsewhere</a> <a href="#top">top</a>
<a href="mailto:a@example.com">mail</a> <pre>a **b** | c</pre> <code>](</code>`
	shards = `<html><h1>Shards</h1><h2 id="drain">Drain</h2><img src="../a.js"><a href="..">start</a>`
	index  = `{"docs": [{"location": "shards/#drain", "title": "Drain a shard", "text": "Move workspaces."}]}`
)

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		file, text string
		want       string
	}{
		"as it should be":             {"a.js", "", ""},
		"a link to no file":           {"shards/index.html", shards + `<a href="../gone/">x</a>`, "shards/index.html: the link ../gone/ leads nowhere"},
		"a link to no anchor":         {"shards/index.html", `<a href="..#drain">x</a>` + shards, "shards/index.html: the link ..#drain leads nowhere"},
		"an anchor that is gone":      {"shards/index.html", `<a href="..">x</a>`, "index.html: the link shards/#drain leads nowhere"},
		"a script of another host":    {"shards/index.html", shards + `<script src="//cdn.example.com/a.js"></script>`, "shards/index.html: it loads //cdn.example.com/a.js from another host"},
		"a style of another host":     {"shards/index.html", shards + `<p style="background: url(https://example.com/a.png)">`, "shards/index.html: it loads https://example.com/a.png from another host"},
		"a font of another host":      {"a.css", `@font-face {src: url("https://fonts.example.com/a.woff")}`, "a.css: it loads https://fonts.example.com/a.woff from another host"},
		"a page without a link to it": {"metrics/index.html", "<html>", "metrics/index.html: it is not in the navigation: add it to tools/site/mkdocs.yml"},
		"a list that is none":         {"shards/index.html", shards + "<p>Shards:\n* alpha</p>", `shards/index.html: it has Markdown: "Shards:\n* alpha"`},
		"a link that is none":         {"shards/index.html", shards + "<p>[a](b.md)</p>", `shards/index.html: it has Markdown: "[a](b.md)"`},
		"search that finds nothing":   {"search/search_index.json", `{"docs": []}`, `search: "drain shard" does not find shards/`},
	} {
		t.Run(name, func(t *testing.T) {
			site := fstest.MapFS{}
			for file, text := range map[string]string{
				"index.html": start, "shards/index.html": shards, "a.css": "p {}", "a.js": "", "search/search_index.json": index, tc.file: tc.text,
			} {
				site[file] = &fstest.MapFile{Data: []byte(text)}
			}
			problems, links, err := check(site, map[string]string{"drain shard": "shards/"})
			require.NoError(t, err)
			require.NotZero(t, links)
			if tc.want == "" {
				require.Empty(t, problems)
			} else {
				require.Equal(t, []string{tc.want}, problems)
			}
		})
	}
}
