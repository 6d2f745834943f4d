// Package docs contains the documents that kcpctl can print.
package docs

import _ "embed"

//go:generate sh -c "go run .. graph -f ../examples/sharded.yaml -o svg > sharded.svg"
//go:generate go run ../internal/tools/schema -root ..

//go:embed kcp.schema.json
var schema string

// Schema returns the JSON schema of the setup file.
func Schema() string { return schema }
