package ui

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// Confirm asks a question, the answer to which is no unless somebody types yes. Where nobody can be asked it is an error
// that names --yes. It returns early when ctx ends.
func (s *Streams) Confirm(ctx context.Context, question string) (bool, error) {
	question = s.Err.Text(question)
	if !s.InTTY || !s.Err.TTY {
		return false, clierr.New(clierr.BadInput, "add --yes to do it without being asked",
			"cannot ask %q: this is not a terminal", question)
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
