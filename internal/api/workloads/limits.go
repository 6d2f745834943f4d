package workloads

// DefaultMaxObjects is how many objects of one workspace may be scheduled to clusters, and DefaultMaxBytes how large
// all of its objects may be together, as JSON. Both are far above what a workspace usually has.
const (
	DefaultMaxObjects = 10000
	DefaultMaxBytes   = 256 << 20
)
