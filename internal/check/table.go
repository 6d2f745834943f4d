package check

import "slices"

// The categories, in the order in which they are checked.
const (
	catClusters     = "Kubernetes clusters"
	catNamespace    = "What the clusters let in"
	catNetwork      = "Network of this machine"
	catMachine      = "This machine"
	catComponents   = "Components"
	catConnections  = "Connections"
	catKcp          = "kcp"
	catCertificates = "Certificates"
)

// All returns every check: first those before a setup is applied, then those of one that runs.
func All() []Check { return slices.Concat(Before(), After()) }

// Quick are the checks of Before that are worth their time even if there is nothing to apply.
func Quick() []Check {
	return slices.DeleteFunc(Before(), func(c Check) bool { return c.Thorough })
}

// Rest are the other checks of Before.
func Rest() []Check {
	return slices.DeleteFunc(Before(), func(c Check) bool { return !c.Thorough })
}
