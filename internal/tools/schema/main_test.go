package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd"
)

const root = "../../.."

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	files, err := generate(root)
	require.NoError(t, err)
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(string(want), string(got)), "run make generate")
	}
}

func TestEveryFieldHasADescription(t *testing.T) {
	files, err := generate(root)
	require.NoError(t, err)
	var schema any
	require.NoError(t, json.Unmarshal(files["docs/kcp.schema.json"], &schema))
	eachProperty(schema, func(name string, property map[string]any) {
		require.NotEmpty(t, property["description"], name)
	})
	for line := range strings.Lines(string(files["docs/setup.md"])) {
		require.NotContains(t, line, "|  |\n")
	}
}

// Each flag that users see is in the section of its command, and has a row.
func TestEveryFlagIsInTheReference(t *testing.T) {
	text := string(commands(cmd.Commands()))
	documented := allCommands(cmd.Commands())
	require.Greater(t, len(documented), 50)
	for _, c := range documented {
		_, section, ok := strings.Cut(text, "\n### "+c.CommandPath()+"\n")
		require.True(t, ok, c.CommandPath())
		section, _, _ = strings.Cut(section, "\n##")
		require.NotContains(t, section, "|  |\n", "%s: a flag has no description", c.CommandPath())
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" {
				require.Regexp(t, "`(-., )?--"+f.Name+"[`= []", section, c.CommandPath())
				require.Regexp(t, "(?m)^\\| `(-., )?--"+f.Name+"[`= []", text, "%s has no row", f.Name)
			}
		})
	}
}

// eachProperty visits all properties of a schema.
func eachProperty(node any, visit func(string, map[string]any)) {
	object, ok := node.(map[string]any)
	if !ok {
		return
	}
	properties, _ := object["properties"].(map[string]any)
	for name, p := range properties {
		visit(name, p.(map[string]any))
	}
	for _, child := range object {
		eachProperty(child, visit)
	}
}

func TestSplitDefault(t *testing.T) {
	for comment, want := range map[string][2]string{
		"Port is 1 to 65535. Default: 6443.":              {"Port is 1 to 65535.", "6443"},
		"Image. Default: ghcr.io/kcp-dev/kcp. It is big.": {"Image. It is big.", "ghcr.io/kcp-dev/kcp"},
		"No default here.":                                {"No default here.", ""},
		"Default: as kubectl finds it.":                   {"", "as kubectl finds it"},
	} {
		text, value := splitDefault(comment)
		require.Equal(t, want, [2]string{text, value}, comment)
	}
}

func TestWriteNeedsTheRepository(t *testing.T) {
	require.Error(t, write(t.TempDir()))
}

func TestWithoutName(t *testing.T) {
	for comment, want := range map[string]string{
		"Tag is the tag of the image. It is short.": "The tag of the image. It is short.",
		"Tag sets the tag.":                         "Sets the tag.",
		"Tag is example.com/v1.":                    "example.com/v1.",
		"Tags are the tags.":                        "Tags are the tags.",
		"The tag.":                                  "The tag.",
	} {
		require.Equal(t, want, withoutName(comment, "Tag"))
	}
}
