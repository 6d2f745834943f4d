package ui

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Streams are the three streams of a command.
type Streams struct {
	In io.Reader
	// Out is for results, Err for everything about the run.
	Out, Err *Stream
	// InTTY reports that In is a terminal, so a user can answer questions.
	InTTY bool
}

// Stream is an output stream with its style and terminal size.
type Stream struct {
	io.Writer
	Style
	// TTY reports that the stream is a terminal.
	TTY bool
	// Live reports that lines may be redrawn in place.
	Live bool
	// Size is the terminal's current width and height in characters.
	Size func() (width, height int)
	// Lost is called when the stream has lost its reader. Nil ignores it.
	Lost func()
}

// Write implements io.Writer.
func (s Stream) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) && s.Lost != nil {
		s.Lost()
	}
	return n, err
}

// The values of --color.
const (
	ColorAuto   = "auto"
	ColorAlways = "always"
	ColorNever  = "never"
)

// Options are the flags that control output.
type Options struct {
	// Color is auto, always or never; empty is auto.
	Color string
	// Plain disables colours and redrawing, as if no stream were a terminal.
	Plain bool
}

// System returns the streams of the process. The environment determines colours and the character set.
func System(env func(string) string, stdin, stdout, stderr *os.File) *Streams {
	s := &Streams{
		In:    stdin,
		InTTY: term.IsTerminal(int(stdin.Fd())),
		Out:   fileStream(stdout),
		Err:   fileStream(stderr),
	}
	s.detect(env)
	return s
}

// Fake returns streams for tests: terminals of a width and height, or pipes if the width is 0. The environment has the
// format of os.Environ.
func Fake(in string, width, height int, environ ...string) (s *Streams, out, err *bytes.Buffer) {
	out, err = &bytes.Buffer{}, &bytes.Buffer{}
	size := func() (int, int) { return width, height }
	s = &Streams{
		In:    strings.NewReader(in),
		InTTY: width > 0,
		Out:   &Stream{Writer: out, TTY: width > 0, Size: size},
		Err:   &Stream{Writer: err, TTY: width > 0, Size: size},
	}
	s.detect(func(key string) string {
		for _, kv := range environ {
			if v, ok := strings.CutPrefix(kv, key+"="); ok {
				return v
			}
		}
		return ""
	})
	return s, out, err
}

// OutputIs reports whether the standard output goes to the file at path.
func (s *Streams) OutputIs(path string) bool {
	out, ok := s.Out.Writer.(*os.File)
	if !ok {
		return false
	}
	to, err := out.Stat()
	if err != nil || !to.Mode().IsRegular() {
		return false
	}
	from, err := os.Stat(path)
	return err == nil && os.SameFile(from, to)
}

// Configure applies the flags.
func (s *Streams) Configure(o Options) error {
	switch o.Color {
	case "", ColorAuto, ColorAlways, ColorNever:
	default:
		return clierr.New(clierr.BadInput, "use --color=auto, --color=always or --color=never",
			"unknown colour mode %q", o.Color)
	}
	for _, out := range []*Stream{s.Out, s.Err} {
		if o.Plain {
			out.colour = false
			out.Live = false
		}
		if o.Color != "" && o.Color != ColorAuto {
			out.colour = o.Color == ColorAlways
		}
	}
	return nil
}

func (s *Streams) detect(env func(string) string) {
	dumb := env("TERM") == "dumb"
	for _, out := range []*Stream{s.Out, s.Err} {
		out.utf8 = utf8Locale(env) && !dumb
		out.Live = out.TTY && !dumb
		out.colour = out.Live && env("NO_COLOR") == ""
	}
}

// utf8Locale follows POSIX: the first of these variables that is set determines the locale.
func utf8Locale(env func(string) string) bool {
	for _, key := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToUpper(env(key)); v != "" {
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return false
}

func fileStream(f *os.File) *Stream {
	fd := int(f.Fd())
	return &Stream{
		Writer: f,
		TTY:    redraws(fd),
		Size: func() (int, int) {
			width, height, err := term.GetSize(fd)
			if err != nil || width <= 0 || height <= 0 {
				return 80, 24 // serial lines have no size
			}
			return width, height
		},
	}
}

// Confirm asks a question and reports whether the user answered yes. It fails if stdin or stderr is not a terminal, or
// if ctx ends.
func (s *Streams) Confirm(ctx context.Context, question string) (bool, error) {
	question = s.Err.Text(question)
	if !s.InTTY || !s.Err.TTY {
		return false, clierr.New(clierr.BadInput, "", "confirmation is required, but there is no terminal; use --yes")
	}
	fmt.Fprintf(s.Err, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // a read of a terminal cannot be interrupted; it ends with the process
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		answer <- line
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(s.Err)
		return false, ctx.Err()
	case line := <-answer:
		if !strings.HasSuffix(line, "\n") {
			fmt.Fprintln(s.Err) // end of input
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return true, nil
		}
		return false, nil
	}
}
