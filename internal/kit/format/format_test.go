package format

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

type part struct {
	Name string `json:"name"`
	Size int    `json:"size,omitempty"`
}

type document struct {
	ID    string          `json:"id"`
	Off   bool            `json:"off,omitempty"`
	Parts map[string]part `json:"parts,omitempty"`
	List  []part          `json:"list,omitempty"`
}

func TestUnknownFieldsSurvive(t *testing.T) {
	for _, tt := range []struct{ name, previous, next, want string }{
		{"nothing before", ``, `{"id":"b"}`, `{"id":"b"}`},
		{"nothing unknown", `{"id":"a","off":true}`, `{"id":"b"}`, `{"id":"b"}`},
		{"a known field with its zero value", `{"id":"a","off":false,"parts":{}}`, `{"id":"b"}`, `{"id":"b"}`},
		{"a field", `{"id":"a","more":{"n":9007199254740993}}`, `{"id":"b"}`, `{"id":"b","more":{"n":9007199254740993}}`},
		{"a field that both have", `{"id":"a","more":1}`, `{"id":"b","more":2}`, `{"id":"b","more":2}`},
		{
			"a field of an entry of a map", `{"id":"a","parts":{"x":{"name":"x","color":"red"},"y":{"name":"y","color":"blue"}}}`,
			`{"id":"a","parts":{"x":{"name":"x","size":2}}}`, `{"id":"a","parts":{"x":{"name":"x","size":2,"color":"red"}}}`,
		},
		{
			"a field of a list item that has moved", `{"id":"a","list":[{"name":"x","color":"red"},{"name":"y","color":"blue"}]}`,
			`{"id":"a","list":[{"name":"z"},{"name":"y","size":3}]}`, `{"id":"a","list":[{"name":"z"},{"name":"y","size":3,"color":"blue"}]}`,
		},
		{"an object that goes", `{"id":"a","parts":{"x":{"name":"x","color":"red"}}}`, `{"id":"a"}`, `{"id":"a"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Keep[document]([]byte(tt.previous), []byte(tt.next))
			require.NoError(t, err)
			require.JSONEq(t, tt.want, string(got))
			again, err := Keep[document](got, []byte(tt.next))
			require.NoError(t, err)
			require.Equal(t, string(got), string(again), "the bytes are stable")
		})
	}
	_, err := Keep[document]([]byte("{"), []byte("{}"))
	require.Error(t, err)
}

func TestListsKeepFieldsOfTheirItems(t *testing.T) {
	got, err := Keep[[]part]([]byte(`[{"name":"x","color":"red"}]`), []byte(`[{"name":"w"},{"name":"x"}]`))
	require.NoError(t, err)
	require.JSONEq(t, `[{"name":"w"},{"name":"x","color":"red"}]`, string(got))
}

func TestStamp(t *testing.T) {
	none := Stamp{}
	require.NoError(t, none.Writable("the record"))
	first := none.Next("v0.9.0")
	require.Equal(t, Stamp{Number: Number, MinWriter: minWriter, Release: "v0.9.0"}, first)
	require.Equal(t, first, first.Next("v0.9.9"), "the first release that may write it stays")
	require.Equal(t, "a later kcpctl (upgrade kcpctl to at least v0.9.0)", first.Needed())

	later := Stamp{Number: Number + 3, MinWriter: Number, Release: "v2.0.0"}
	require.NoError(t, later.Writable("the record"))
	require.Equal(t, later, later.Next("v0.9.0"), "an earlier kcpctl lowers nothing")

	later.MinWriter = Number + 2
	err := later.Writable("the record of demo")
	require.ErrorContains(t, err, "the record of demo has format 4, and this kcpctl knows formats up to 1: it would lose")
	require.Equal(t, "upgrade kcpctl to at least v2.0.0", clierr.Hint(err))
	require.Contains(t, Upgrade("devel"), "built without a release")
}
