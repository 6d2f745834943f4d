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

// parseYAML returns the root of the only document in data.
func parseYAML(data []byte) (*yaml.Node, *Problem) {
	docs, problem := Documents(data)
	switch {
	case problem != nil:
		return nil, problem
	case len(docs) == 0:
		return nil, &Problem{Line: 1, Column: 1, Message: "the file is empty",
			Hint: "kcpctl init writes a setup file to start from"}
	case len(docs) > 1:
		return nil, &Problem{
			Line: docs[1].Line, Column: docs[1].Column, Message: "a second document starts here",
			Hint: "a setup file contains one document: put other setups in separate files",
		}
	}
	return docs[0], nil
}

// lineReader reads a text one line at a time, so that read has the lines that a parser has read before it failed.
type lineReader struct {
	lines [][]byte
	read  int
	rest  []byte
}

func (r *lineReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.read == len(r.lines) {
			return 0, io.EOF
		}
		r.rest = r.lines[r.read]
		r.read++
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// indent is the indentation of a line, or of the last one before it that is neither empty nor a comment.
func (r *lineReader) indent(i int) int {
	for ; i >= 0; i-- {
		if text := bytes.TrimLeft(r.lines[i], " "); len(bytes.TrimSpace(text)) > 0 && text[0] != '#' {
			return len(r.lines[i]) - len(text)
		}
	}
	return 0
}

// misaligned reports whether a line is indented less than the line above, and starts in a column in which nothing
// starts that it could belong to.
func (r *lineReader) misaligned(line int) bool {
	own, above := r.indent(line), r.indent(line-1)
	if above <= own {
		text := bytes.TrimLeft(r.lines[max(0, line-1)], " ")
		fields := len(text) - len(bytes.TrimLeft(text, "- ")) // where those of a list's item start
		return above < own && bytes.HasPrefix(text, []byte("- ")) && own < above+fields
	}
	for i := line - 1; i >= 0; i-- {
		switch indent := r.indent(i); {
		case indent == own:
			return false
		case indent < own:
			return true
		}
	}
	return true
}

// gluedItem returns the line nearest above another one that begins like an item of a list, but has no space after the
// "-": YAML takes it for a field. It returns -1 if there is none.
func (r *lineReader) gluedItem(line int) int {
	for i := line; i >= 0; i-- {
		text := bytes.TrimLeft(r.lines[i], " ")
		if len(text) > 1 && text[0] == '-' && !bytes.ContainsAny(text[1:2], "- \r\n") {
			return i
		}
		if r.indent(i) < r.indent(line) {
			break
		}
	}
	return -1
}

func checkUTF8(data []byte) *Problem {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			start := bytes.LastIndexByte(data[:i], '\n') + 1
			return &Problem{
				Line: bytes.Count(data[:i], []byte("\n")) + 1, Column: utf8.RuneCount(data[start:i]) + 1,
				Message: "not UTF-8", Hint: "save the file in this encoding",
			}
		}
		i += size
	}
	return nil
}

// documents returns the roots of all documents that are not empty.
func documents(in io.Reader) ([]*yaml.Node, error) {
	var docs []*yaml.Node
	dec := yaml.NewDecoder(in)
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

// syntaxProblem explains why a text is not valid YAML.
func syntaxProblem(in *lineReader, err error) *Problem {
	line, text := splitYAMLError(err)
	line = brokenLine(in, line)
	broken := in.lines[line-1]
	indent := broken[:len(broken)-len(bytes.TrimLeft(broken, " \t"))]
	p := &Problem{Line: line, Column: len(indent) + 1, Message: "invalid YAML: " + text}
	if strings.Contains(text, "expected key") || strings.Contains(text, "expected '-'") {
		p.Hint = "is there text after a value in quotes or brackets?"
		if in.misaligned(line - 1) {
			p.Message = "invalid YAML: the indentation differs from the line above"
			p.Hint = "items of a list, and fields of an object, start in the same column"
		}
	}
	if strings.Contains(text, "mapping values are not allowed") {
		p.Hint = `is the line indented too far, or does the line above it lack a ":"?`
		if bytes.Count(broken, []byte(": ")) > 1 {
			p.Hint = `put quotes around a value that contains ": "`
		}
	}
	if strings.Contains(text, "unexpected end of stream") {
		p.Hint = "are quotes that the value starts with closed?"
	}
	if m := regexp.MustCompile("unknown anchor '(.*)' referenced").FindStringSubmatch(text); m != nil {
		before, _, _ := bytes.Cut(broken, []byte("*"+m[1]))
		p.Column = utf8.RuneCount(before) + 1
		p.Hint = "a value above it must have the anchor &" + m[1]
	}
	if at := in.gluedItem(line - 1); at >= 0 {
		*p = Problem{Line: at + 1, Column: in.indent(at) + 1, Hint: "put one there",
			Message: "invalid YAML: there is no space after the - of a list's item"}
	}
	if tab := bytes.IndexByte(indent, '\t'); tab >= 0 {
		p.Column = tab + 1
		p.Message = "the line is indented with a tab"
		p.Hint = "use spaces"
	}
	return p
}

// maxLookahead is how many lines the parser may have read beyond the line with the error.
const maxLookahead = 20

// brokenLine finds the first line that makes the text invalid: one of the last lines that the parser read. If it is
// none of them, as with quotes that are never closed, it is the line that the parser reports, where the block around
// the error starts.
func brokenLine(in *lineReader, reported int) int {
	for n := in.read - 1; n > 0 && n >= in.read-maxLookahead; n-- {
		if _, err := documents(bytes.NewReader(bytes.Join(in.lines[:n], nil))); err == nil {
			return n + 1
		}
	}
	return min(max(reported, 1), len(in.lines))
}

// splitYAMLError splits "yaml: line 4: did not find expected key" into the line and the message.
func splitYAMLError(err error) (line int, text string) {
	text = strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = m[2]
		if strings.HasPrefix(text, "did not find expected") {
			line++ // the library counts the lines of these errors from 0
		}
	}
	return line, text
}
