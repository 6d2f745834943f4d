package schema

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProblems(t *testing.T) {
	const schema = `{"$defs":{"Item":{"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer"}},
		"required":["name"]}},"type":"object","properties":{"items":{"type":"array","items":{"$ref":"#/$defs/Item"}},
		"status":{"enum":["ok","failed"]},"by":{"type":"object","additionalProperties":{"type":"boolean"}},
		"any":true,"free":{"type":"object"},"lost":{"$ref":"#/$defs/Lost"}}}`
	for document, want := range map[string][]string{
		`{"items":[{"name":"a","n":1}],"status":"ok","by":{"x":true},"any":7,"free":{"a":{"b":1}}}`: nil,
		`{"items":[{"n":1}]}`:              {".items[0]: lacks name"},
		`{"items":[{"name":"a","n":1.5}]}`: {".items[0].n: 1.5 is not of type integer"},
		`{"status":"OK"}`:                  {".status: OK is not one of [ok failed]"},
		`{"by":{"x":1}}`:                   {".by.x: 1 is not of type boolean"},
		`{"more":1}`:                       {".more: the schema has no such property"},
		`[]`:                               {": [] is not of type object"},
		`{"lost":1}`:                       {".lost: the schema has no definition Lost"},
		`{`:                                {"unexpected end of JSON input"},
	} {
		require.Equal(t, want, Problems([]byte(schema), []byte(document)), document)
	}
}
