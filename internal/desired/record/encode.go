package record

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/format"
)

// plainSize is the largest size, in bytes, of a record that is stored as readable text. A longer one is compressed:
// with a thousand shards it would fill the Secret, which also holds the history.
const plainSize = 16 << 10

// stored is a record as it is stored.
type stored struct {
	*Record
	// Applied is the field from which releases without formats read AuthoritiesApplied. They would drop what they do
	// not know, so it has a text for their users instead of a time: they refuse the record, and print it.
	Applied any `json:"authoritiesApplied,omitempty"`
}

// Encode returns the record as a kcpctl of a release stores it: JSON, compressed if it is long. It keeps what only a
// later kcpctl knows of the previous one, and fails if this kcpctl must not replace that. Without a previous one, that
// is nil.
func (r *Record) Encode(release string, previous []byte) ([]byte, error) {
	out := *r
	was, err := Decode(previous)
	if err != nil {
		return nil, err
	}
	if err := was.Writable(); err != nil {
		return nil, err
	}
	if was.Format.Number > 0 {
		out.Format = was.Format
	}
	out.Format = out.Format.Next(release)
	raw, err := json.Marshal(stored{Record: &out, Applied: out.Format.Needed()})
	if err == nil {
		raw, err = keep(previous, raw)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the record of the installation: %w", err)
	}
	if len(raw) <= plainSize {
		return raw, nil
	}
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, err = z.Write(raw)
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, fmt.Errorf("compress the record of the installation: %w", err)
	}
	return buf.Bytes(), nil
}

func keep(previous, next []byte) ([]byte, error) {
	previous, err := plain(previous)
	if err != nil {
		return nil, err
	}
	return format.Keep[stored](previous, next)
}

// Decode parses the result of Encode, also of earlier releases. No data is an empty record.
func Decode(raw []byte) (*Record, error) {
	r := &Record{}
	if len(raw) == 0 {
		return r, nil
	}
	raw, err := plain(raw)
	if err != nil {
		return nil, fmt.Errorf("read the record of the installation: %w", err)
	}
	s := stored{Record: r}
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("read the record of the installation: %w", err)
	}
	if text, ok := s.Applied.(string); ok && r.Format.Number == 0 {
		if r.AuthoritiesApplied, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, fmt.Errorf("read the record of the installation: %w", err)
		}
	}
	return r, nil
}

// plain returns a stored record without its compression.
func plain(raw []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return raw, nil
	}
	return io.ReadAll(z)
}

// Writable fails if only a later kcpctl may write the record.
func (r *Record) Writable() error {
	return r.Format.Writable("the record of installation " + r.Installation)
}

// CheckInstallation fails if the setup file is for another installation than the one of the record. named is the
// installation that the file names, "" if it names none, and place is where the record is.
func (r *Record) CheckInstallation(named, place string) error {
	if named == "" || r.Empty() || r.Installation == named {
		return nil
	}
	return clierr.New(clierr.Failed,
		"use the file of this installation, or choose the right context and namespace; "+
			risk.OtherCluster.Flag()+" does not help here",
		"the setup file is for installation %s (metadata.installation), and %s has installation %s; "+
			"nothing was changed",
		named, place, r.Installation)
}
