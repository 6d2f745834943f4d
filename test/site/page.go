package main

import (
	"io"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// page is what a page of HTML has.
type page struct {
	name  string
	ids   []string
	links []link
	// markdown are texts that look as Markdown does, outside of code.
	markdown []string
}

// link is an address in a page. Browsers load it, unless it is followed by users.
type link struct {
	target             string
	followed, navigate bool
}

// parse reads a page.
func parse(name string, r io.Reader) (*page, error) {
	root, err := html.Parse(r)
	if err != nil {
		return nil, err
	}
	p := &page{name: name}
	p.visit(root, false)
	return p, nil
}

// visit reads an element and what is in it.
func (p *page) visit(n *html.Node, navigation bool) {
	switch n.Type {
	case html.TextNode:
		if looksLikeMarkdown.MatchString(n.Data) {
			p.markdown = append(p.markdown, strings.TrimSpace(n.Data))
		}
	case html.ElementNode:
		navigation = navigation || n.Data == "nav" && strings.Contains(attribute(n, "class"), "md-nav--primary")
		p.element(n, navigation)
		if slices.Contains(verbatim, n.Data) {
			return
		}
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		p.visit(c, navigation)
	}
}

// verbatim are elements whose texts are not prose, and have no links.
var verbatim = []string{"pre", "code", "script", "style", "svg"}

var looksLikeMarkdown = regexp.MustCompile("```|\\]\\(|\\|---|\\*\\*|\n[*|] |^[*|] ")

// element notes the addresses and the anchors of an element.
func (p *page) element(n *html.Node, navigation bool) {
	for _, a := range n.Attr {
		switch {
		case a.Key == "id" || a.Key == "name" && n.Data == "a":
			p.ids = append(p.ids, a.Val)
		case a.Key == "href" || a.Key == "src" || a.Key == "data" && n.Data == "object":
			p.links = append(p.links, link{a.Val, n.Data == "a", navigation})
		case a.Key == "srcset":
			for part := range strings.SplitSeq(a.Val, ",") {
				p.links = append(p.links, link{strings.Fields(part + " .")[0], false, false})
			}
		case a.Key == "style" && imported.MatchString(a.Val):
			p.links = append(p.links, link{imported.FindStringSubmatch(a.Val)[1], false, false})
		}
	}
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// navigation returns the pages to which the navigation of a page leads.
func (p *page) navigation() []string {
	out := []string{p.name}
	for _, l := range p.links {
		if l.navigate && !l.elsewhere() {
			file, _ := l.resolve(p.name)
			out = append(out, path.Join(file, home))
		}
	}
	return out
}

// scheme returns the scheme of an address, such as mailto. It is empty for a link within the site.
func (l link) scheme() string {
	u, err := url.Parse(l.target)
	if err != nil {
		return ""
	}
	return u.Scheme
}

// elsewhere reports whether a link leads to another host.
func (l link) elsewhere() bool {
	u, err := url.Parse(l.target)
	return err == nil && u.Host != ""
}

// resolve returns the file of the site to which a link of a page leads, and the anchor.
func (l link) resolve(name string) (file, anchor string) {
	u, err := url.Parse(l.target)
	if err != nil {
		return l.target, ""
	}
	if u.Path == "" {
		return name, u.Fragment
	}
	return path.Join(path.Dir(name), u.Path), u.Fragment
}
