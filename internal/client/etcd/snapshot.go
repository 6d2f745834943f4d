package etcd

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"
)

const (
	// maxMessage is the largest message of a snapshot, in bytes. etcd sends 32 KiB (etcd:
	// server/etcdserver/api/v3rpc/maintenance.go, snapshotSendBufferSize).
	maxMessage = 4 << 20
	// stallTimeout is how long a snapshot may pause.
	stallTimeout = 30 * time.Second
)

// errStalled means that a snapshot has stopped in the middle.
var errStalled = fmt.Errorf("no data for %s", stallTimeout)

// Progress is called with the bytes that were received and that are expected.
type Progress func(done, total int64)

// Snapshot copies a snapshot of the member's database to w: the file, and its SHA-256, as etcdctl snapshot save writes
// them. The member fixes its state when it begins to send, which is when begun is called. After an error, w has no
// complete snapshot.
func (c *Client) Snapshot(ctx context.Context, w io.Writer, begun func(), report Progress) error {
	ctx, arrives, stop := withPauses(ctx, stallTimeout, errStalled)
	defer stop()
	resp, err := c.send(ctx, "Maintenance/Snapshot", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	s := &snapshot{to: w, sum: sha256.New(), begun: begun, report: report}
	body := arrives(resp.Body)
	for {
		message, err := readMessage(body)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = s.add(message)
		}
		if err != nil {
			return withCause(ctx, err)
		}
	}
	if err := responseError(resp); err != nil {
		return err
	}
	return s.end()
}

// readMessage reads a gRPC message. It returns io.EOF at the end of the stream.
func readMessage(r io.Reader) ([]byte, error) {
	var prefix [prefixSize]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(prefix[1:])
	if prefix[0] != 0 || size > maxMessage {
		return nil, errMalformed
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(r, message); err != nil {
		return nil, fmt.Errorf("the snapshot ends in the middle: %w", io.ErrUnexpectedEOF)
	}
	return message, nil
}

// snapshot is a snapshot that is being received.
type snapshot struct {
	to     io.Writer
	sum    hash.Hash
	begun  func()
	report Progress
	done   int64
	// tail are the last bytes: the digest, if nothing follows.
	tail []byte
}

// add writes the content of a message (etcd: api/etcdserverpb/rpc.proto, SnapshotResponse).
func (s *snapshot) add(message []byte) error {
	if s.done == 0 {
		s.begun()
	}
	var blob []byte
	var remaining int64
	err := fields(message, func(field int, number uint64, content []byte) error {
		switch field {
		case 2:
			remaining = int64(number)
		case 3:
			blob = content
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := s.to.Write(blob); err != nil {
		return err
	}
	s.done += int64(len(blob))
	s.tail = append(s.tail, blob...)
	if whole := len(s.tail) - sha256.Size; whole > 0 {
		s.sum.Write(s.tail[:whole])
		s.tail = append([]byte(nil), s.tail[whole:]...)
	}
	s.report(s.done, s.done+remaining)
	return nil
}

// end compares the digest at the end of the stream with the content.
func (s *snapshot) end() error {
	if len(s.tail) < sha256.Size || string(s.sum.Sum(nil)) != string(s.tail) {
		return errors.New("the snapshot is incomplete: its SHA-256 differs")
	}
	return nil
}
