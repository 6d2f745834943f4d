package cmd

import (
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// mapped returns what of returns for each of all.
func mapped[T, R any](all []T, of func(T) R) []R {
	var out []R
	for _, one := range all {
		out = append(out, of(one))
	}
	return out
}

// noneFound says that a list is empty, as kubectl does.
func (e *Env) noneFound(what, where string) {
	fmt.Fprintf(e.Streams.Err, "No %s found in %s.\n", what, where)
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
	if len(known) == 0 {
		hint = fmt.Sprintf("the setup has no %s", what)
	}
	return clierr.New(clierr.BadInput, nearestOr(known, name, hint), "there is no %s %q", what, name)
}

// nearestOr is a hint with the known name that a user probably means, or another hint.
func nearestOr(known []string, name, other string) string {
	if nearest := setup.Nearest(known, name); nearest != "" {
		return fmt.Sprintf("did you mean %s?", nearest)
	}
	return other
}

// quote makes a value safe to paste into a shell.
func quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,~") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
