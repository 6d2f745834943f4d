package importer

import (
	"fmt"
	"strings"
)

// Kind is the statement of a finding about fields of the input.
type Kind string

// The kinds of findings.
const (
	// Unknown fields are neither in the API of the source nor in its chart.
	Unknown Kind = "unknown"
	// NotMapped fields have an effect that the setup file does not repeat.
	NotMapped Kind = "not mapped"
	// Review marks fields that are mapped, but do not mean exactly the same.
	Review Kind = "review"
	// NotNeeded fields have no effect, or kcpctl does the same without a setting.
	NotNeeded Kind = "not needed"
)

// Kinds returns the kinds of findings, the most important first.
func Kinds() []Kind { return []Kind{Unknown, NotMapped, Review, NotNeeded} }

// Finding names fields of the input that the setup file does not have, or not with the same meaning.
type Finding struct {
	Kind Kind
	File string
	// Line and Column are the position of the first field, from 1. They are 0 if the input was read from a cluster.
	Line, Column int
	// Object is the object with the fields, such as "RootShard root".
	Object string
	// Paths are the fields, such as spec.caBundleSecretRef. It is empty if the finding is about the whole object.
	Paths []string
	// Reason is the reason, and Instead the next step. Instead is empty if no step is necessary.
	Reason, Instead string
}

// String is file:line:column: object: paths: reason; what to do.
func (f Finding) String() string {
	if f.Line == 0 {
		return f.Object + ": " + f.message()
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", f.File, f.Line, f.Column, f.Object, f.message())
}

func (f Finding) message() string {
	s := f.Reason
	if len(f.Paths) > 0 {
		s = strings.Join(f.Paths, ", ") + ": " + s
	}
	if f.Instead != "" {
		s += "; " + f.Instead
	}
	return s
}
