// Package format numbers what kcpctl keeps about an installation, so that an earlier kcpctl does not write what it
// cannot keep, and preserves what a later one has added. The package is pure.
package format

import (
	"regexp"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Number is the format of this kcpctl. It grows with each field that runs rely on. Releases without a number have
// format 0.
const Number = 1

// minWriter is the smallest format whose kcpctl keeps everything that this one writes. It grows if keeping unknown
// fields as they are is not enough, because their values would become wrong.
const minWriter = 1

// Stamp is the format of a document.
type Stamp struct {
	// Number is the format in which the document was written.
	Number int `json:"number"`
	// MinWriter is the smallest format that a kcpctl must know to write the document.
	MinWriter int `json:"minWriter"`
	// Release is a kcpctl that may write the document: the first one that has written it with this MinWriter.
	Release string `json:"release"`
}

// Next returns the stamp of a document after a kcpctl of a release has written it.
func (s Stamp) Next(release string) Stamp {
	s.Number = max(s.Number, Number)
	if s.MinWriter < minWriter {
		s.MinWriter = minWriter
		s.Release = release
	}
	return s
}

// Writable fails if this kcpctl must not write a document with the stamp. what names it.
func (s Stamp) Writable(what string) error {
	if s.MinWriter <= Number {
		return nil
	}
	return clierr.New(clierr.Failed, Upgrade(s.Release),
		"%s has format %d, and this kcpctl knows formats up to %d: it would lose what it does not know; "+
			"nothing was changed",
		what, s.Number, Number)
}

// Needed returns what earlier releases print, which know no stamps, if they read a document with the stamp.
func (s Stamp) Needed() string { return "a later kcpctl (" + Upgrade(s.Release) + ")" }

// Upgrade returns the next step of a user whose kcpctl is too old.
func Upgrade(release string) string {
	if regexp.MustCompile(`^v[0-9]`).MatchString(release) {
		return "upgrade kcpctl to at least " + release
	}
	return "upgrade kcpctl: the one that has written it was built without a release"
}
