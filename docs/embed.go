// Package docs contains the documents that kcpctl can print.
package docs

import "embed"

//go:generate sh -c "go run .. graph -f ../examples/sharded.yaml -o svg > sharded.svg"
//go:generate go run ../internal/tools/schema -root ..
//go:generate go run ../internal/tools/rooms -root ..

//go:embed kcp.schema.json
var schema string

//go:embed schemas/*.json
var outputs embed.FS

// OutputSchema returns the JSON schema of what commands print with -o json, by the name of the output.
func OutputSchema(name string) (schema string, ok bool) {
	text, err := outputs.ReadFile("schemas/" + name + ".json")
	return string(text), err == nil
}

// Schema returns the JSON schema of the setup file.
func Schema() string { return schema }
