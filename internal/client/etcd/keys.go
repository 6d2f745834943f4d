package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

const (
	// keysPerAnswer is how many keys are read at once, with their values, and fewer if their values are large.
	keysPerAnswer = 200
	// maxKeys is how large their answer may be, in bytes. It has room for many of the largest values that etcd accepts
	// by default, 1.5 MiB.
	maxKeys = 64 << 20
)

// Each calls a function for each key below a prefix, without the prefix, with the value, which is valid until the
// function returns. The keys are not read at one revision.
func (c *Client) Each(ctx context.Context, prefix string, visit func(key string, value []byte)) error {
	prefix = strings.TrimSuffix(prefix, "/") + "/"
	from, end := prefix, prefix[:len(prefix)-1]+"0" // 0 follows /
	for limit := uint64(keysPerAnswer); ; {
		request := appendUint(appendBytes(appendBytes(nil, 1, from), 2, end), 3, limit)
		answer, err := c.callUpTo(ctx, "KV/Range", request, maxKeys)
		if errors.Is(err, errTooLarge) && limit > 1 {
			limit /= 2
			continue
		}
		if err != nil {
			return fmt.Errorf("list keys: %w", err)
		}
		last, more, err := eachIn(answer, func(key string, value []byte) {
			visit(strings.TrimPrefix(key, prefix), value)
		})
		if err != nil || !more {
			return err
		}
		from = last + "\x00"
	}
}

// eachIn visits the keys of an answer, and returns the last one and whether there are more.
func eachIn(answer []byte, visit func(key string, value []byte)) (last string, more bool, err error) {
	err = fields(answer, func(field int, number uint64, content []byte) error {
		switch field {
		case 2:
			var value []byte
			err := fields(content, func(field int, _ uint64, content []byte) error {
				switch field {
				case 1:
					last = string(content)
				case 5:
					value = content
				}
				return nil
			})
			visit(last, value)
			return err
		case 3:
			more = number != 0
		}
		return nil
	})
	return last, more, err
}
