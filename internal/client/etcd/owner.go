package etcd

import (
	"context"
	"fmt"
)

// ownerKey is below the prefix of a kcp in an external etcd. Its value is the ID of the installation that the prefix
// belongs to. kcp lists only keys of API groups, with a slash at the end.
const ownerKey = "/kcpctl.dev/owner"

// The fields of etcd's messages (etcd: api/etcdserverpb/rpc.proto, api/mvccpb/kv.proto).
const (
	compareTarget, compareKey, compareCreated = 2, 3, 5
	targetCreated                             = 1
	txnCompare, txnSuccess, txnFailure        = 1, 2, 3
	opRange, opPut                            = 1, 2
)

// Owner returns the ID of the installation that a prefix belongs to, or "".
func (c *Client) Owner(ctx context.Context, prefix string) (string, error) {
	answer, err := c.call(ctx, "KV/Range", appendBytes(nil, 1, prefix+ownerKey))
	if err != nil {
		return "", fmt.Errorf("read the owner of %s: %w", prefix, err)
	}
	return ownerIn(answer)
}

// Claim makes an installation the owner of a prefix without an owner, and returns the owner: another one may have been
// faster.
func (c *Client) Claim(ctx context.Context, prefix, installation string) (string, error) {
	key := prefix + ownerKey
	unowned := appendUint(appendBytes(appendUint(nil, compareTarget, targetCreated), compareKey, key),
		compareCreated, 0)
	put := appendBytes(nil, opPut, string(appendBytes(appendBytes(nil, 1, key), 2, installation)))
	get := appendBytes(nil, opRange, string(appendBytes(nil, 1, key)))
	request := appendBytes(nil, txnCompare, string(unowned))
	request = appendBytes(appendBytes(request, txnSuccess, string(put)), txnFailure, string(get))
	answer, err := c.call(ctx, "KV/Txn", request)
	if err != nil {
		return "", fmt.Errorf("claim %s: %w", prefix, err)
	}
	owner := installation
	err = fields(answer, func(field int, _ uint64, content []byte) error {
		if field != 3 { // the responses
			return nil
		}
		return fields(content, func(field int, _ uint64, content []byte) (err error) {
			if field == opRange {
				owner, err = ownerIn(content)
			}
			return err
		})
	})
	return owner, err
}

// TakeOver makes an installation the owner of a prefix, also of one that has another owner.
func (c *Client) TakeOver(ctx context.Context, prefix, installation string) error {
	if _, err := c.call(ctx, "KV/Put", appendBytes(appendBytes(nil, 1, prefix+ownerKey), 2, installation)); err != nil {
		return fmt.Errorf("claim %s: %w", prefix, err)
	}
	return nil
}

// ownerIn returns the value in the answer of a range of one key.
func ownerIn(answer []byte) (owner string, err error) {
	err = fields(answer, func(field int, _ uint64, content []byte) error {
		if field != 2 { // the keys and values
			return nil
		}
		return fields(content, func(field int, _ uint64, content []byte) error {
			if field == 5 {
				owner = string(content)
			}
			return nil
		})
	})
	return owner, err
}
