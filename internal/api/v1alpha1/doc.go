// Package v1alpha1 holds the types of the setup file: one kcp installation in one document.
//
// Every default is applied by package setup; a field that is left out means what its comment says.
package v1alpha1

const (
	// Group is the API group of the setup file.
	Group = "kcpctl.dev"
	// Version is the version of the API group that these types describe.
	Version = "v1alpha1"
	// APIVersion is what a setup file says in apiVersion.
	APIVersion = Group + "/" + Version
	// KindSetup is what a setup file says in kind.
	KindSetup = "Setup"
)
