package parallel

import "sync"

// Batch calls functions that do the same for all callers. A call serves all callers that came before it began; calls
// never overlap. The zero value is ready for use.
type Batch struct {
	mu sync.Mutex
	// current is closed when the latest call has ended, next when the one after it has. They are nil if there is none.
	current, next chan struct{}
}

// Do returns when a call that began after Do has ended: of do, or of the function of another caller.
func (b *Batch) Do(do func()) {
	b.mu.Lock()
	if next := b.next; next != nil {
		b.mu.Unlock()
		<-next
		return
	}
	previous, done := b.current, make(chan struct{})
	b.next = done
	b.mu.Unlock()
	if previous != nil {
		<-previous
	}
	b.mu.Lock()
	b.current = done
	b.next = nil
	b.mu.Unlock()
	defer close(done)
	do()
}
