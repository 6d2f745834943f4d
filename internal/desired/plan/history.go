package plan

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/kit/format"
)

const (
	historyKey = "history.json"
	// historyLength is the maximum number of revisions.
	historyLength = 10
	// historySize is the maximum size of a history, in bytes. A Secret can contain 1 MiB.
	historySize = 700 << 10
	// plainSize is the maximum size of a setup that is stored as text, in bytes. Larger setups are compressed.
	plainSize = 8 << 10
)

// Revision is a setup that was applied.
type Revision struct {
	// Number is the number of the revision, from 1.
	Number int `json:"revision"`
	// Time is when it was applied.
	Time time.Time `json:"time"`
	// Version is the kcpctl that applied it.
	Version string `json:"kcpctl"`
	// User is the user who applied it.
	User string `json:"user"`
	// Only are the components that the run was limited to, if the setup had other changes that the run did not apply.
	// It is empty if the whole setup was applied.
	Only []string `json:"only,omitempty"`
	// Without are the clusters that the run left out, because they could not be reached.
	Without []string `json:"without,omitempty"`
	// Setup is the setup with all defaults.
	Setup []byte `json:"-"`
	// File is the text of the setup file. It is nil if it was not kept: by an earlier kcpctl, or because it is too
	// large.
	File []byte `json:"-"`
	// Own means that the user of this kcpctl has applied it. A Runtime sets it.
	Own bool `json:"-"`
}

// Applied is the part of a setup that a run applied: the whole setup, some of its components, or the components on some
// clusters. Without a setup, no revision is added.
type Applied struct {
	Setup []byte
	// File is the text of the setup file.
	File []byte
	Only []string
	// Without are the clusters that the run left out.
	Without []string
}

// Complete reports whether the whole setup was applied.
func (r Revision) Complete() bool { return len(r.Only) == 0 && len(r.Without) == 0 }

// Latest returns the last setup that was applied completely, and reports whether it is the last revision.
func Latest(history []Revision) (setup []byte, complete bool) {
	for i := len(history) - 1; i >= 0; i-- {
		if history[i].Complete() {
			return history[i].Setup, i == len(history)-1
		}
	}
	return nil, false
}

// SameSetup reports whether two setups, as history has them, mean the same to a run. The installation that a setup is
// for is not compared: up --write-installation adds it to the file when the run has ended.
func SameSetup(a, b []byte) bool {
	return bytes.Equal(withoutInstallation(a), withoutInstallation(b))
}

func withoutInstallation(setup []byte) []byte {
	i := bytes.Index(setup, []byte("\n  installation: "))
	if i < 0 || i > bytes.Index(setup, []byte("\nspec:")) {
		return setup
	}
	_, after, _ := bytes.Cut(setup[i+1:], []byte("\n"))
	return slices.Concat(setup[:i+1], after)
}

// Remember appends a revision to a history and drops the oldest ones. It does not add a setup that equals the last one.
func Remember(history []Revision, r Revision) []Revision {
	if n := len(history); n == 0 && r.Setup == nil {
		return history
	} else if n > 0 {
		last := history[n-1]
		if r.Setup == nil || bytes.Equal(last.Setup, r.Setup) && slices.Equal(last.Only, r.Only) &&
			slices.Equal(last.Without, r.Without) {
			return history
		}
		r.Number = last.Number
	}
	r.Number++
	r.Time = r.Time.UTC().Truncate(time.Second)
	history = append(history[:len(history):len(history)], r)
	return trim(history)
}

// trim drops the oldest revisions, but keeps the last one that was applied completely.
func trim(history []Revision) []Revision {
	for len(history) > historyLength {
		drop := 0
		if setup, _ := Latest(history[1:]); setup == nil {
			drop = 1
		}
		history = slices.Delete(slices.Clone(history), drop, drop+1)
	}
	return history
}

// EncodeHistory encodes a history as the data of a Secret. It omits the oldest revisions if the history is too large,
// and the texts of the oldest files before that. It keeps the fields of revisions in the previous data that only a
// later kcpctl knows.
func EncodeHistory(history []Revision, previous map[string][]byte) (map[string][]byte, error) {
	data := map[string][]byte{}
	size := 0
	first := len(history)
	for ; first > 0; first-- {
		r := history[first-1]
		key, value, err := pack(r.setupKey(), r.Setup)
		if err != nil {
			return nil, err
		}
		if size+len(value) > historySize && first < len(history) {
			break
		}
		size += len(value)
		data[key] = value
	}
	if err := addFiles(data, history[first:], size); err != nil {
		return nil, err
	}
	index, err := json.Marshal(history[first:])
	if err == nil {
		index, err = format.Keep[[]Revision](previous[historyKey], index)
	}
	if err != nil {
		return nil, fmt.Errorf("encode history: %w", err)
	}
	data[historyKey] = index
	return data, nil
}

// addFiles adds the texts of setup files to data of a size, the newest first, as long as they fit.
func addFiles(data map[string][]byte, history []Revision, size int) error {
	for _, r := range slices.Backward(history) {
		if r.File == nil {
			continue
		}
		key, value, err := pack(r.fileKey(), r.File)
		if err != nil {
			return err
		}
		if size += len(value); size > historySize {
			return nil
		}
		data[key] = value
	}
	return nil
}

// IsHistory reports whether a key is a key of EncodeHistory.
func IsHistory(key string) bool {
	plain := strings.TrimSuffix(key, packed)
	for _, keyOf := range []func(Revision) string{Revision.setupKey, Revision.fileKey} {
		_, rest, _ := strings.Cut(plain, ".")
		number, err := strconv.Atoi(strings.TrimSuffix(rest, ".yaml"))
		if err == nil && plain == keyOf(Revision{Number: number}) {
			return true
		}
	}
	return key == historyKey
}

// DecodeHistory decodes the data of EncodeHistory. It ignores other entries.
func DecodeHistory(data map[string][]byte) ([]Revision, error) {
	var history []Revision
	if len(data[historyKey]) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(data[historyKey], &history); err != nil {
		return nil, fmt.Errorf("decode history: %w", err)
	}
	for i := range history {
		r := &history[i]
		var errSetup, errFile error
		r.Setup, errSetup = unpack(data, r.setupKey())
		r.File, errFile = unpack(data, r.fileKey())
		if err := errors.Join(errSetup, errFile); err != nil {
			return nil, fmt.Errorf("decode revision %d: %w", r.Number, err)
		}
	}
	return history, nil
}

func (r Revision) setupKey() string { return fmt.Sprintf("setup.%d.yaml", r.Number) }
func (r Revision) fileKey() string  { return fmt.Sprintf("file.%d.yaml", r.Number) }

// packed is the end of the keys of compressed entries.
const packed = ".gz"

// pack returns an entry with a text, which is compressed if it is long.
func pack(plainKey string, text []byte) (key string, value []byte, err error) {
	if len(text) <= plainSize {
		return plainKey, text, nil
	}
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, err = z.Write(text)
	if err = errors.Join(err, z.Close()); err != nil {
		return "", nil, fmt.Errorf("compress %s: %w", plainKey, err)
	}
	return plainKey + packed, buf.Bytes(), nil
}

// unpack returns the text of an entry of pack, or nil if it does not exist.
func unpack(data map[string][]byte, plainKey string) ([]byte, error) {
	compressed, ok := data[plainKey+packed]
	if !ok {
		return data[plainKey], nil
	}
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
