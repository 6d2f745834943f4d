package splitter

// Len returns the number of statuses of which fields are remembered.
func (d *Dropped) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.fields)
}
