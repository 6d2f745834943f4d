package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lock waits until no other process holds the lock of that name, takes it, and returns what gives it back.
func (t *testbed) lock(ctx context.Context, name string) (func(), error) {
	dir := filepath.Join(t.cache, "locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for noted := false; ; noted = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil // closing unlocks
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			if !noted {
				t.log.note("waiting for another process that works on %s", name)
			}
			err = sleep(ctx, 100*time.Millisecond)
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
	}
}
