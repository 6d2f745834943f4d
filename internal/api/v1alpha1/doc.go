// Package v1alpha1 contains the types of the setup file: one kcp installation in one document.
//
// Package setup applies the defaults. The comments document them, and are the source of the reference docs/setup.md.
package v1alpha1

const (
	// Group is the API group of the setup file.
	Group = "kcpctl.dev"
	// Version is the version of the API group that these types describe.
	Version = "v1alpha1"
	// APIVersion is the apiVersion of a setup file.
	APIVersion = Group + "/" + Version
	// KindSetup is the kind of a setup file.
	KindSetup = "Setup"
)
