package ui

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// vt is a terminal that interprets the output of live. It keeps the scrollback.
type vt struct {
	t             *testing.T
	width, height int
	lines         [][]rune // the scrollback, then the screen
	broken        []bool   // the line continues in the next one, because it did not fit
	top, x, y     int      // the first line of the screen; the cursor, y counted over all lines
	hidden        bool
}

func newVT(t *testing.T, width, height int) *vt {
	return &vt{t: t, width: width, height: height, lines: make([][]rune, 1), broken: make([]bool, 1)}
}

var csi = regexp.MustCompile(`^\x1b\[(\??[0-9]*)([A-Za-z])`)

func (v *vt) Write(p []byte) (int, error) {
	for text := string(p); text != ""; {
		if m := csi.FindStringSubmatch(text); m != nil {
			v.control(m[1], m[2])
			text = text[len(m[0]):]
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		v.put(r)
	}
	return len(p), nil
}

func (v *vt) control(arg, command string) {
	switch command + arg {
	case "K":
		v.lines[v.y], v.broken[v.y] = v.lines[v.y][:min(v.x, len(v.lines[v.y]))], false
	case "J":
		v.control("", "K")
		v.lines, v.broken = v.lines[:v.y+1], v.broken[:v.y+1]
	case "l?25", "h?25":
		v.hidden = command == "l"
	default:
		if command == "m" {
			return
		}
		require.Equal(v.t, "A", command, "unknown control sequence")
		n, err := strconv.Atoi(arg)
		require.NoError(v.t, err)
		v.y = max(v.top, v.y-n)
	}
}

func (v *vt) put(r rune) {
	switch r {
	case '\r':
		v.x = 0
	case '\n': // the tty driver adds the carriage return
		v.down()
	default:
		require.GreaterOrEqual(v.t, r, ' ', "control character")
		if v.x == v.width {
			v.broken[v.y] = true
			v.down()
		}
		line := v.lines[v.y]
		for len(line) <= v.x {
			line = append(line, ' ')
		}
		line[v.x] = r
		v.lines[v.y] = line
		v.x++
	}
}

func (v *vt) down() {
	v.x = 0
	v.y++
	if v.y == len(v.lines) {
		v.lines, v.broken = append(v.lines, nil), append(v.broken, false)
	}
	v.top = max(v.top, v.y-v.height+1)
}

// narrow reflows lines that no longer fit, as terminals do.
func (v *vt) narrow(width int) {
	old, cursor := v.lines, v.y
	v.width, v.lines, v.broken = width, nil, nil
	for i, line := range old {
		if i == cursor {
			v.y = len(v.lines)
		}
		for len(line) > width {
			v.lines, v.broken = append(v.lines, line[:width:width]), append(v.broken, true)
			line = line[width:]
		}
		v.lines, v.broken = append(v.lines, line), append(v.broken, false)
	}
	v.top = max(0, v.y-v.height+1)
}

// String returns the scrollback and the screen.
func (v *vt) String() string { return text(v.lines) }

// screen returns the visible lines.
func (v *vt) screen() string { return text(v.lines[v.top:]) }

func text(lines [][]rune) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.TrimRight(string(line), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
