package etcd

import (
	"encoding/binary"
	"errors"
)

// The wire types of protocol buffers in etcd's messages.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

var errMalformed = errors.New("malformed protocol buffer")

func appendUint(b []byte, field int, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(field)<<3|wireVarint), v)
}

func appendBool(b []byte, field int, v bool) []byte {
	if !v {
		return b // the default is not sent
	}
	return appendUint(b, field, 1)
}

func appendBytes(b []byte, field int, v string) []byte {
	b = binary.AppendUvarint(b, uint64(field)<<3|wireBytes)
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// fields calls a function for each field of a message, with its number or its bytes.
func fields(b []byte, visit func(field int, number uint64, content []byte) error) error {
	next := func() (uint64, bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
		return v, true
	}
	for len(b) > 0 {
		tag, ok := next()
		if !ok {
			return errMalformed
		}
		var number uint64
		var content []byte
		size := uint64(0)
		switch tag & 7 {
		case wireVarint:
			number, ok = next()
		case wire64:
			size = 8
		case wireBytes:
			size, ok = next()
		case wire32:
			size = 4
		default:
			ok = false
		}
		if !ok || size > uint64(len(b)) {
			return errMalformed
		}
		content, b = b[:size], b[size:]
		if err := visit(int(tag>>3), number, content); err != nil {
			return err
		}
	}
	return nil
}
