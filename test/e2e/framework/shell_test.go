package framework

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A test sees what users see in a terminal: output, questions with the answer, exit codes. Variables remain set.
func TestShell(t *testing.T) {
	s := startShell(t, t.TempDir(), nil)
	for _, c := range []struct {
		text, printed string
		code          int
	}{
		{"x=1; cat <<EOF\na\nEOF", "a\n", 0},
		{"echo $x; (exit 3)", "1\n", 3},
		{`test -t 0 && test -t 1 && test -t 2 && printf 'Sure? [y/N] ' && read a && echo "<$a>"`, "Sure? [y/N] y\n<y>\n", 0},
	} {
		r := s.typed(t, c.text)
		require.Equal(t, c.printed, r.Stdout)
		require.Equal(t, c.code, r.Code)
	}
}
