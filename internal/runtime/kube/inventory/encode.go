package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/kit/format"
)

// encodeData returns the data of the inventory's Secret. It keeps entries and fields that only a later kcpctl knows.
func (i *Inventory) encodeData(version string) (map[string][]byte, error) {
	data := maps.Clone(i.secret.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	maps.DeleteFunc(data, func(key string, _ []byte) bool {
		return key == clustersKey || key == ownerKey || key == recordKey || key == runKey || plan.IsHistory(key)
	})
	err := errors.Join(
		i.encodeHistory(data),
		encodeOver(data, i.secret.Data, clustersKey, i.Clusters, len(i.Clusters) > 0),
		encodeOver(data, i.secret.Data, ownerKey, i.Owner, i.Owner.Installation != ""),
		encodeOver(data, i.secret.Data, runKey, i.Run, i.Run != nil),
	)
	if err != nil || i.Record.Empty() {
		return data, err
	}
	data[recordKey], err = i.Record.Encode(version, i.secret.Data[recordKey])
	return data, err
}

func (i *Inventory) encodeHistory(data map[string][]byte) error {
	if len(i.History) == 0 {
		return nil
	}
	history, err := plan.EncodeHistory(i.History, i.secret.Data)
	maps.Copy(data, history)
	return err
}

// encodeOver writes a value, if there is one, into an entry. It keeps what only a later kcpctl knows of the previous
// one.
func encodeOver[T any](data, previous map[string][]byte, key string, value T, exists bool) error {
	if !exists {
		return nil
	}
	raw, err := json.Marshal(value)
	if err == nil {
		data[key], err = format.Keep[T](previous[key], raw)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}
