// Package gather shortens what concerns many subjects: lists of names, and messages that say the same of each.
package gather

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Listed is how many of many names a sentence lists.
const Listed = 3

// Most is how many things that are alike are listed one by one. More of them are listed as one, so that a setup with a
// hundred shards fits on a screen, and a small one is listed completely.
const Most = 8

// Alike returns things in groups. More than Most things with the same key are a group, all others are groups of one.
// The groups are in the order of their first things.
func Alike[T any](things []T, key func(T) string) [][]T {
	same := map[string][]T{}
	for _, t := range things {
		k := key(t)
		same[k] = append(same[k], t)
	}
	var out [][]T
	seen := map[string]bool{}
	for _, t := range things {
		switch k := key(t); {
		case len(same[k]) <= Most:
			out = append(out, []T{t})
		case !seen[k]:
			seen[k] = true
			out = append(out, same[k])
		}
	}
	return out
}

// Names returns many names with a common prefix in one word, of which it shows the first: shard/{a,b,...}.
func Names(prefix string, names []string) string {
	shown := names[:min(len(names), 2)]
	if len(names) > len(shown) {
		shown = append(slices.Clone(shown), "...")
	}
	return prefix + "{" + strings.Join(shown, ",") + "}"
}

// Count is a number of things: 1 certificate, 2 certificates.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Few joins texts. If there are many, it joins the first ones, and says how many more there are, which are at least
// two.
func Few(all []string, most int, separator string) string {
	if more := len(all) - most; more > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], separator), more)
	}
	return strings.Join(all, separator)
}

// Messages joins messages that say the same of many subjects, such as the shards that all wait for the same thing:
//
//	shard/a: Pod demo-shard-a-x2x: ImagePullBackOff
//	shard/b: Pod demo-shard-b-7d9: ImagePullBackOff
//	...
//
// becomes
//
//	shard/a, shard/b, shard/c and 37 more: Pod demo-shard-…: ImagePullBackOff
//
// Messages are alike if their first lines are the same except for one word, and words that contain its name. Further
// lines are taken from the first message. A few messages that are alike are not joined. The order is kept.
func Messages(messages []string) []string {
	var groups []*alike
	for _, m := range messages {
		first, rest, _ := strings.Cut(m, "\n")
		words := strings.Split(first, " ")
		if !slices.ContainsFunc(groups, func(g *alike) bool { return g.add(m, words) }) {
			groups = append(groups, &alike{messages: []string{m}, words: [][]string{words}, at: -1, rest: rest})
		}
	}
	var out []string
	for _, g := range groups {
		out = append(out, g.text()...)
	}
	return out
}

// alike are messages that differ in one word, at an index, and in words that contain its name.
type alike struct {
	messages []string
	words    [][]string // of their first lines
	at       int        // -1 for a single message
	rest     string     // the further lines of the first message
}

// add adds a message if it is like the others.
func (a *alike) add(message string, words []string) bool {
	first := a.words[0]
	if len(words) != len(first) {
		return false
	}
	at := 0
	for at < len(words) && words[at] == first[at] {
		at++
	}
	if at == len(words) || a.at >= 0 && at != a.at {
		return false
	}
	x, y := nameIn(first[at]), nameIn(words[at])
	if x == "" || y == "" || ending(first[at]) != ending(words[at]) {
		return false
	}
	for i := at + 1; i < len(words); i++ {
		if words[i] != first[i] && Elide(first[i], x) != Elide(words[i], y) {
			return false
		}
	}
	a.at, a.messages, a.words = at, append(a.messages, message), append(a.words, words)
	return true
}

// text returns the messages, or the one that replaces them.
func (a *alike) text() []string {
	if len(a.messages) <= Listed+1 {
		return a.messages
	}
	var subjects []string
	for _, words := range a.words {
		subjects = append(subjects, strings.TrimRight(words[a.at], punctuation))
	}
	line := slices.Clone(a.words[0])
	for i := a.at + 1; i < len(line); i++ {
		if slices.ContainsFunc(a.words, func(words []string) bool { return words[i] != line[i] }) {
			line[i] = Elide(line[i], nameIn(line[a.at]))
		}
	}
	line[a.at] = Few(subjects, Listed, ", ") + ending(line[a.at])
	out := strings.Join(line, " ")
	if a.rest != "" {
		out += "\n" + a.rest
	}
	return []string{out}
}

// punctuation is what may follow the subject of a message.
const punctuation = ",:;"

func ending(word string) string { return word[len(strings.TrimRight(word, punctuation)):] }

// nameIn returns the name in a word: alpha in shard/alpha. It is empty if the word has no letters: a number is not a
// subject.
func nameIn(word string) string {
	name := strings.Trim(word, punctuation+`"'()`)
	name = name[strings.LastIndexByte(name, '/')+1:]
	if !strings.ContainsFunc(name, unicode.IsLetter) {
		return ""
	}
	return name
}

// Elide replaces a name in a word, and what follows it in names that are derived from it, with an ellipsis.
func Elide(word, name string) string {
	return replace(word, name, func(rest string) int {
		end := 0
		for end < len(rest) && (rest[end] == '-' || isAlphanumeric(rest[end])) {
			end++
		}
		return end
	})
}

// Without replaces a name in a text with an ellipsis, also as a part of other names: demo-alpha-server becomes
// demo-…-server.
func Without(text, name string) string { return replace(text, name, func(string) int { return 0 }) }

// replace replaces a name, and as many bytes after it as a function returns, with an ellipsis.
func replace(text, name string, more func(rest string) int) string {
	if name == "" {
		return text
	}
	var b strings.Builder
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return b.String() + text[at:]
		}
		i += at
		end := i + len(name)
		if i > 0 && isAlphanumeric(text[i-1]) || end < len(text) && isAlphanumeric(text[end]) {
			b.WriteString(text[at:end]) // a part of another name
		} else {
			b.WriteString(text[at:i] + "…")
			end += more(text[end:])
		}
		at = end
	}
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// In splits a text into messages: lines with the indented lines that follow them.
func In(text string) []string {
	var out []string
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		line = strings.TrimRight(line, "\n")
		if n := len(out); n > 0 && strings.TrimLeft(line, " \t") != line {
			out[n-1] += "\n" + line
			continue
		}
		out = append(out, line)
	}
	return out
}

// Once returns a function that returns each text the first time that it is called with it, and then "": several things
// can have the same next step.
func Once() func(text string) string {
	seen := map[string]bool{}
	return func(text string) string {
		if seen[text] {
			return ""
		}
		seen[text] = true
		return text
	}
}
