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

// noteInterval is the time between two lines about the same wait.
const noteInterval = 15 * time.Second

// lock waits until no other process holds the lock of that name, takes it, and returns a function that releases it.
func (t *testbed) lock(ctx context.Context, name string) (func(), error) {
	dir := filepath.Join(t.cache, "locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	noted, began := time.Time{}, time.Now()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil // closing unlocks
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			if time.Since(noted) > noteInterval {
				noted = time.Now()
				t.log.note("waiting for another process that works on %s: %s", name, time.Since(began).Round(time.Second))
			}
			err = sleep(ctx, 100*time.Millisecond)
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
	}
}
