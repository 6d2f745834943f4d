package setup

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parseYAML returns the root of the one document in data.
func parseYAML(data []byte) (*yaml.Node, *Problem) {
	if p := checkUTF8(data); p != nil {
		return nil, p
	}
	docs, err := documents(data)
	switch {
	case err != nil:
		return nil, syntaxProblem(data, err)
	case len(docs) == 0:
		return nil, &Problem{Line: 1, Column: 1, Message: "the file is empty", Hint: "kcpctl init writes a setup to begin with"}
	case len(docs) > 1:
		return nil, &Problem{
			Line: docs[1].Line, Column: docs[1].Column, Message: "a second document begins here",
			Hint: "a setup file holds one: put other setups into files of their own",
		}
	}
	return docs[0], nil
}

func checkUTF8(data []byte) *Problem {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			start := bytes.LastIndexByte(data[:i], '\n') + 1
			return &Problem{
				Line: bytes.Count(data[:i], []byte("\n")) + 1, Column: utf8.RuneCount(data[start:i]) + 1,
				Message: "is not UTF-8", Hint: "save the file in that encoding",
			}
		}
		i += size
	}
	return nil
}

// documents returns the roots of all documents that hold something.
func documents(data []byte) ([]*yaml.Node, error) {
	var docs []*yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		doc := &yaml.Node{}
		err := dec.Decode(doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}
		if len(doc.Content) == 1 && doc.Content[0].ShortTag() != "!!null" {
			docs = append(docs, doc.Content[0])
		}
	}
}

// syntaxProblem explains why data is no YAML.
func syntaxProblem(data []byte, err error) *Problem {
	line, text := splitYAMLError(err)
	lines := bytes.SplitAfter(data, []byte("\n"))
	if len(data)*len(lines) < maxSyntaxWork {
		line = brokenLine(lines)
	}
	line = min(max(line, 1), len(lines))
	broken := lines[line-1]
	indent := broken[:len(broken)-len(bytes.TrimLeft(broken, " \t"))]
	p := &Problem{Line: line, Column: len(indent) + 1, Message: text}
	if strings.Contains(text, "mapping values are not allowed") {
		p.Hint = `is the line indented too far, or does the one above it lack a ":"?`
	}
	if tab := bytes.IndexByte(indent, '\t'); tab >= 0 {
		p.Column, p.Message, p.Hint = tab+1, "the line is indented with a tab", "YAML wants spaces"
	}
	return p
}

// maxSyntaxWork bounds the text that is parsed again to find the line of an error, in bytes: about a second.
const maxSyntaxWork = 32 << 20

// brokenLine finds the line with which the text stops being YAML. The parser's own number is that of the block around the
// error, which can be far above it.
func brokenLine(lines [][]byte) int {
	for n := len(lines) - 1; n > 0; n-- {
		if _, err := documents(bytes.Join(lines[:n], nil)); err == nil {
			return n + 1
		}
	}
	return 1
}

// splitYAMLError takes "yaml: line 4: did not find expected key" apart.
func splitYAMLError(err error) (line int, text string) {
	text = strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = m[2]
	}
	return line, "is no YAML: " + text
}
