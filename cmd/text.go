package cmd

import (
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/gather"
	"github.com/kcpctl/kcpctl/internal/setup"
)

// plural is a number of things: 1 certificate, 2 certificates.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// either lists alternatives: json, yaml or svg.
func either(all []string) string {
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// maxHintNames is how many names a hint lists.
const maxHintNames = 20

// oneOf is a hint that lists the valid values.
func oneOf(names []string) string {
	return "use one of " + gather.Few(names, maxHintNames, ", ")
}

// unknownName is the error for a name that is not among the known ones.
func unknownName(what, name string, known []string) error {
	hint := oneOf(known)
	if nearest := setup.Nearest(known, name); nearest != "" {
		hint = fmt.Sprintf("did you mean %s?", nearest)
	}
	return clierr.New(clierr.BadInput, hint, "there is no %s %q", what, name)
}

// quote makes a value safe to paste into a shell.
func quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,~") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
