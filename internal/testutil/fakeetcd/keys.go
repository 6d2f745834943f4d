package fakeetcd

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
)

// keys are the keys of an etcd with their values.
type keys map[string]string

// Keys returns the keys with their values.
func (e *Etcd) Keys() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.keys)
}

// SetKeys sets keys.
func (e *Etcd) SetKeys(values map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.keys == nil {
		e.keys = keys{}
	}
	maps.Copy(e.keys, values)
}

// keysPerAnswer is how many keys of a range an answer has at most, if the limit is higher.
const keysPerAnswer = 2

// do handles a range, a put of one key, and a transaction that puts a key which does not exist, or else reads it.
func (k *keys) do(method string, request []byte) []byte {
	if *k == nil {
		*k = keys{}
	}
	in := messageOf(request)
	switch method {
	case "KV/Put":
		(*k)[string(in[1])] = string(in[2])
		return nil
	case "KV/Txn":
		if _, exists := (*k)[string(messageOf(in[1])[3])]; !exists {
			return content(nil, 3, content(nil, 2, k.do("KV/Put", messageOf(in[2])[2])))
		}
		return content(nil, 3, content(nil, 1, k.do("KV/Range", messageOf(in[3])[1])))
	}
	from, end := string(in[1]), cmp.Or(string(in[2]), string(in[1])+"\x00")
	most := keysPerAnswer
	if limit, ok := in[3]; ok {
		n, _ := binary.Uvarint(limit)
		most = min(most, int(n))
	}
	var answer []byte
	found := 0
	for _, key := range slices.Sorted(maps.Keys(*k)) {
		if key < from || key >= end {
			continue
		}
		if found++; found > most {
			return number(answer, 3, 1)
		}
		answer = content(answer, 2, content(content(nil, 1, []byte(key)), 5, []byte((*k)[key])))
	}
	return answer
}

// messageOf returns the last bytes of each field of a message. Those of a number are a varint.
func messageOf(b []byte) map[int][]byte {
	out := map[int][]byte{}
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		v, m := binary.Uvarint(b[n:])
		if tag&7 != 2 {
			out[int(tag>>3)] = b[n : n+m]
			b = b[n+m:]
			continue
		}
		b = b[n+m:]
		out[int(tag>>3)] = b[:v]
		b = b[v:]
	}
	return out
}
