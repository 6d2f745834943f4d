package inventory

import (
	"encoding/json"
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
	if err := i.encodeHistory(data); err != nil {
		return nil, err
	}
	if len(i.Clusters) > 0 {
		if err := encodeOver(data, i.secret.Data, clustersKey, i.Clusters); err != nil {
			return nil, err
		}
	}
	if i.Owner.Installation != "" {
		if err := encodeOver(data, i.secret.Data, ownerKey, i.Owner); err != nil {
			return nil, err
		}
	}
	if i.Run != nil {
		if err := encodeOver(data, i.secret.Data, runKey, i.Run); err != nil {
			return nil, err
		}
	}
	if i.Record.Empty() {
		return data, nil
	}
	var err error
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

// encodeOver writes a value into an entry. It keeps what only a later kcpctl knows of the previous one.
func encodeOver[T any](data, previous map[string][]byte, key string, value T) error {
	raw, err := json.Marshal(value)
	if err == nil {
		data[key], err = format.Keep[T](previous[key], raw)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}
