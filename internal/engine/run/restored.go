package run

import (
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Restored is data that a restore brings back.
type Restored struct {
	// File is a database, which package database has prepared. The place may move it away.
	File string
	// Suffix is the end of the new names of previous data.
	Suffix string
	// Report is called with the reason for a wait, and Progress with the bytes that were written and all bytes. Calls
	// do not overlap.
	Report   func(message string)
	Progress func(done, total int64)
}

// Placed is the result of placing restored data, or of moving data aside.
type Placed struct {
	// Aside are the places to which previous data was moved.
	Aside []string
	// Data describes for the record where the component and its etcd hold their data now. Components that begin
	// without data and without volumes are not in it.
	Data map[topology.ID]record.Data
}
