package run

// The cache of a shard that is removed, without the rest of the removal.
var (
	ClearCache = clearCache
	CountCache = countCache
)
