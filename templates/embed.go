// Package templates holds the manifests that kcpctl renders. They compute nothing: package render prepares every value,
// and prints it as JSON, which is YAML that needs no quoting and no indentation.
package templates

import "embed"

// FS has a folder per kind of component. What several of them share is in common.
//
//go:embed */*.yaml
var FS embed.FS
