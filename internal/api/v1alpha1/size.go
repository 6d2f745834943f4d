package v1alpha1

// Size is how many workspaces each shard of a setup is made for.
type Size string

const (
	// SizeSmall is for 200 workspaces.
	SizeSmall Size = "small"
	// SizeMedium is for 1,000 workspaces.
	SizeMedium Size = "medium"
	// SizeLarge is for 3,500 workspaces, the most that load tests of kcp consider for a shard.
	SizeLarge Size = "large"
)

// Sizes are all sizes, the smallest first.
var Sizes = []Size{SizeSmall, SizeMedium, SizeLarge}
