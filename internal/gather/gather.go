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

// Few joins texts. If there are many, it joins the first ones, and says how many more there are, which are at least two.
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
// Messages are alike if their first lines are the same except for one word, and words that contain its name. Further lines are
// those of the first. A few messages that are alike stay as they are, and so does the order.
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
		if words[i] != first[i] && elide(first[i], x) != elide(words[i], y) {
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
			line[i] = elide(line[i], nameIn(line[a.at]))
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

// nameIn returns the name in a word: alpha in shard/alpha. It is empty if the word has no letters: a number is not a subject.
func nameIn(word string) string {
	name := strings.Trim(word, punctuation+`"'()`)
	name = name[strings.LastIndexByte(name, '/')+1:]
	if !strings.ContainsFunc(name, unicode.IsLetter) {
		return ""
	}
	return name
}

// elide replaces a name in a word, and what follows it in names that are derived from it, with an ellipsis.
func elide(word, name string) string {
	var b strings.Builder
	for {
		i := strings.Index(word, name)
		if i < 0 {
			return b.String() + word
		}
		end := i + len(name)
		if i > 0 && isAlphanumeric(word[i-1]) || end < len(word) && isAlphanumeric(word[end]) {
			b.WriteString(word[:end]) // a part of another name
		} else {
			for end < len(word) && (word[end] == '-' || isAlphanumeric(word[end])) {
				end++
			}
			b.WriteString(word[:i] + "…")
		}
		word = word[end:]
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
