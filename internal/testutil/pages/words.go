package pages

import "strings"

// Words splits a command line into the words of each simple command in it, as a shell does: at |, &&, || and ;. Quotes
// are removed. Redirections, and the document of a command, are left out.
func Words(text string) [][]string {
	line, _, _ := strings.Cut(text, "\n")
	var out [][]string
	var words []string
	var word strings.Builder
	var quote rune
	quoted := false
	flush := func() {
		if word.Len() > 0 || quoted {
			words = append(words, word.String())
		}
		word.Reset()
		quoted = false
	}
	next := func() {
		flush()
		if arguments := withoutRedirections(words); len(arguments) > 0 {
			out = append(out, arguments)
		}
		words = nil
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, quoted = r, true
		case r == ' ':
			flush()
		case r == '|' || r == ';' || r == '&' && !strings.HasSuffix(word.String(), ">"):
			next()
		default:
			word.WriteRune(r)
		}
	}
	next()
	return out
}

// withoutRedirections returns the words that a command gets as arguments.
func withoutRedirections(words []string) []string {
	var out []string
	for i := 0; i < len(words); i++ {
		switch target := strings.TrimLeft(strings.TrimLeft(words[i], "012"), "<>"); {
		case !strings.ContainsAny(words[i], "<>") ||
			strings.HasPrefix(words[i], "<") && strings.HasSuffix(words[i], ">"):
			out = append(out, words[i])
		case target == "":
			i++ // the file is the next word
		}
	}
	return out
}
