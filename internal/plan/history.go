package plan

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
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
	// Only are the components that the run was limited to, if the setup had other changes that the run did not apply. It is empty
	// if the whole setup was applied.
	Only []string `json:"only,omitempty"`
	// Without are the clusters that the run left out, because they could not be reached.
	Without []string `json:"without,omitempty"`
	// Setup is the setup file.
	Setup []byte `json:"-"`
}

// Applied is what a run applied: a setup, some of its components, or those on some clusters. Without a setup, no revision
// is added.
type Applied struct {
	Setup []byte
	Only  []string
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

// Remember appends a revision to a history and drops the oldest ones. It does not add a setup that equals the last one.
func Remember(history []Revision, r Revision) []Revision {
	if n := len(history); n == 0 && r.Setup == nil {
		return history
	} else if n > 0 {
		last := history[n-1]
		if r.Setup == nil || bytes.Equal(last.Setup, r.Setup) && slices.Equal(last.Only, r.Only) && slices.Equal(last.Without, r.Without) {
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

// EncodeHistory encodes a history as the data of a Secret. It omits the oldest revisions if the history is too large.
func EncodeHistory(history []Revision) (map[string][]byte, error) {
	data, size := map[string][]byte{}, 0
	first := len(history)
	for ; first > 0; first-- {
		r := history[first-1]
		key, value, err := r.encode()
		if err != nil {
			return nil, err
		}
		if size += len(value); size > historySize && first < len(history) {
			break
		}
		data[key] = value
	}
	index, err := json.Marshal(history[first:])
	if err != nil {
		return nil, fmt.Errorf("encode history: %w", err)
	}
	data[historyKey] = index
	return data, nil
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
		r.Setup = data[r.plainKey()]
		if packed, ok := data[r.packedKey()]; ok {
			z, err := gzip.NewReader(bytes.NewReader(packed))
			if err != nil {
				return nil, fmt.Errorf("decode revision %d: %w", r.Number, err)
			}
			if r.Setup, err = io.ReadAll(z); err != nil {
				return nil, fmt.Errorf("decode revision %d: %w", r.Number, err)
			}
		}
	}
	return history, nil
}

func (r *Revision) plainKey() string  { return fmt.Sprintf("setup.%d.yaml", r.Number) }
func (r *Revision) packedKey() string { return r.plainKey() + ".gz" }

func (r *Revision) encode() (key string, value []byte, err error) {
	if len(r.Setup) <= plainSize {
		return r.plainKey(), r.Setup, nil
	}
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := z.Write(r.Setup); err != nil {
		return "", nil, fmt.Errorf("compress revision %d: %w", r.Number, err)
	}
	if err := z.Close(); err != nil {
		return "", nil, fmt.Errorf("compress revision %d: %w", r.Number, err)
	}
	return r.packedKey(), buf.Bytes(), nil
}
