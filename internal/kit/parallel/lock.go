package parallel

import (
	"context"
	"sync"
)

// Lock is a mutex that is held during requests: who waits for it waits no longer than its own context. The zero value
// is unlocked.
type Lock struct {
	once sync.Once
	held chan struct{}
}

// Lock waits until the lock is free, and takes it. When ctx ends first, Lock returns its cause.
func (l *Lock) Lock(ctx context.Context) error {
	l.once.Do(func() { l.held = make(chan struct{}, 1) })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case l.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Unlock frees the lock, which the caller has taken.
func (l *Lock) Unlock() { <-l.held }

// Memo keeps results of requests, by key. Concurrent calls for a key share one request. The zero value is empty.
type Memo[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]*entry[V]
}

type entry[V any] struct {
	lock  Lock
	known bool
	value V
}

// Get returns the value of a key, and calls do unless a call has already succeeded. An error is not kept.
func (m *Memo[K, V]) Get(ctx context.Context, key K, do func(context.Context) (V, error)) (V, error) {
	m.mu.Lock()
	if m.all == nil {
		m.all = map[K]*entry[V]{}
	}
	e := m.all[key]
	if e == nil {
		e = &entry[V]{}
		m.all[key] = e
	}
	m.mu.Unlock()
	if err := e.lock.Lock(ctx); err != nil {
		var none V
		return none, err
	}
	defer e.lock.Unlock()
	if e.known {
		return e.value, nil
	}
	v, err := do(ctx)
	e.known, e.value = err == nil, v
	return v, err
}
