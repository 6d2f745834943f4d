// Site checks the documentation as a site, as mkdocs has built it: each link and anchor within it leads somewhere, pages load nothing
// from other hosts and contain no Markdown, the navigation has all pages, and search finds what users look for.
package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: site DIRECTORY")
	}
	problems, links, err := check(os.DirFS(os.Args[1]), looked())
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("%s: %d links and %d searches", os.Args[1], links, len(looked()))
	for _, p := range problems {
		log.Print(p)
	}
	if len(problems) > 0 {
		log.Fatalf("%s: %d problems", os.Args[1], len(problems))
	}
}

// looked are the words that users look for, and the page that must be among the results.
func looked() map[string]string {
	return map[string]string{
		"rotate": "certificates/", "add shard": "shards/", "kubeconfig": "quickstart/", "certificate expired": "certificates/",
		"backup": "backup/", "drain": "shards/", "ingress": "exposing/", "audit": "operations/", "air-gapped": "install/",
		"offline": "install/", "multi-cluster": "workloads/", "upgrade": "operations/", "metrics": "metrics/",
		"exit code": "machines/", "karmada": "coming-from/",
	}
}

// check returns the problems of a built site, by page, and how many links it has.
func check(site fs.FS, words map[string]string) (problems []string, links int, _ error) {
	s := &checker{site: site, pages: map[string]*page{}}
	err := fs.WalkDir(site, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
			return err
		case path.Ext(name) == ".html":
			return s.read(name)
		case path.Ext(name) == ".css":
			return s.style(name)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	if s.pages[home] == nil {
		return nil, 0, fmt.Errorf("there is no %s", home)
	}
	for name, p := range s.pages {
		s.follow(name, p)
		links += len(p.links)
		if !slices.Contains(s.pages[home].navigation(), name) {
			s.report(name, "it is not in the navigation: add it to tools/site/mkdocs.yml")
		}
	}
	err = s.search(words)
	slices.Sort(s.problems)
	return s.problems, links, err
}

// home is the page that the directory of a version opens.
const home = "index.html"

type checker struct {
	site     fs.FS
	pages    map[string]*page
	problems []string
}

func (s *checker) report(name, format string, args ...any) {
	s.problems = append(s.problems, name+": "+fmt.Sprintf(format, args...))
}

func (s *checker) read(name string) error {
	f, err := s.site.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	p, err := parse(name, f)
	s.pages[name] = p
	return err
}

// follow reports links that lead nowhere, what the page loads from other hosts, and its Markdown.
func (s *checker) follow(name string, p *page) {
	for _, text := range p.markdown {
		s.report(name, "it has Markdown: %q", text)
	}
	for _, l := range p.links {
		switch {
		case l.elsewhere() && !l.followed:
			s.report(name, "it loads %s from another host", l.target)
		case l.elsewhere() || l.scheme() != "":
		case !s.leads(name, l):
			s.report(name, "the link %s leads nowhere", l.target)
		}
	}
}

// leads reports whether a link of a page leads to a file of the site, and to an anchor in it.
func (s *checker) leads(name string, l link) bool {
	file, anchor := l.resolve(name)
	if info, err := fs.Stat(s.site, file); err == nil && info.IsDir() {
		file = path.Join(file, home)
	}
	if _, err := fs.Stat(s.site, file); err != nil {
		return false
	}
	p := s.pages[file]
	return anchor == "" || p != nil && slices.Contains(p.ids, anchor)
}

var imported = regexp.MustCompile(`(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)`)

func (s *checker) style(name string) error {
	text, err := fs.ReadFile(s.site, name)
	for _, m := range imported.FindAllStringSubmatch(string(text), -1) {
		s.report(name, "it loads %s from another host", m[1])
	}
	return err
}

// search reports words with which the index of the search does not find a page: all of them are in one of its sections.
func (s *checker) search(words map[string]string) error {
	raw, err := fs.ReadFile(s.site, "search/search_index.json")
	if err != nil {
		return err
	}
	var index struct {
		Docs []struct{ Location, Title, Text string }
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return fmt.Errorf("read the index of the search: %w", err)
	}
	for query, where := range words {
		found := false
		for _, d := range index.Docs {
			text := strings.ToLower(d.Title + "\n" + d.Text)
			missing := slices.ContainsFunc(strings.Fields(query), func(w string) bool { return !strings.Contains(text, w) })
			found = found || !missing && strings.HasPrefix(d.Location, where)
		}
		if !found {
			s.report("search", "%q does not find %s", query, where)
		}
	}
	return nil
}
