package api

// DefaultMaxObjects is how many objects of the published APIs one workspace may have, and DefaultMaxBytes how large they may be together,
// as JSON.
const (
	DefaultMaxObjects = 10000
	DefaultMaxBytes   = 64 << 20
)
