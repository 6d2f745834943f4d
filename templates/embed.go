// Package templates contains the manifests that kcpctl renders. They contain no logic: package render computes all
// values and inserts them as JSON, which is YAML without quoting and indentation.
package templates

import "embed"

//go:generate go run ../internal/tools/agent -root ..

// FS has a directory per kind of component. Shared templates are in common.
//
//go:embed */*.yaml
var FS embed.FS
