package api

// DefaultMaxObjects is how many objects of one workspace may be scheduled to clusters, and DefaultMaxBytes how large all of its objects may be
// together, as JSON. A workspace that people use has far less.
const (
	DefaultMaxObjects = 10000
	DefaultMaxBytes   = 256 << 20
)
