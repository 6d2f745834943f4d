package main

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// The document of the binary of this test has the modules of the package, and is the same each time.
func TestWrite(t *testing.T) {
	var documents [2][]byte
	for i := range documents {
		out := filepath.Join(t.TempDir(), "sbom.json")
		require.NoError(t, write(out, os.Args[0], "v0.1.0", "2026-11-27T00:00:00Z"))
		var err error
		documents[i], err = os.ReadFile(out)
		require.NoError(t, err)
	}
	require.Equal(t, string(documents[0]), string(documents[1]))
	var bom struct {
		BOMFormat, SerialNumber string
		Metadata                struct {
			Timestamp string
			Component struct {
				Name, Version string
				Hashes        []struct{ Alg, Content string }
			}
		}
		Components []struct{ Name, PURL string }
	}
	require.NoError(t, json.Unmarshal(documents[0], &bom))
	require.Equal(t, "CycloneDX", bom.BOMFormat)
	require.Regexp(t, regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`), bom.SerialNumber)
	require.Equal(t, "2026-11-27T00:00:00Z", bom.Metadata.Timestamp)
	require.Equal(t, "v0.1.0", bom.Metadata.Component.Version)
	require.Len(t, bom.Metadata.Component.Hashes, 1)
	var names []string
	for _, c := range bom.Components {
		names = append(names, c.Name)
		require.Contains(t, c.PURL, "pkg:golang/"+c.Name+"@")
	}
	require.Subset(t, names, []string{"std", "github.com/CycloneDX/cyclonedx-go"})
}

func TestWriteNeedsAGoBinary(t *testing.T) {
	out := filepath.Join(t.TempDir(), "sbom.json")
	require.ErrorContains(t, write(out, "main.go", "", ""), "main.go")
	require.NoFileExists(t, out)
}

// A module that is replaced is named as its replacement.
func TestReplacedModule(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/m", Version: "(devel)"}, Deps: []*debug.Module{
		{Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/b", Version: "v2.0.0+incompatible", Sum: "h1:x="}},
	}}
	components := *document(info, [sha256.Size]byte{}, "").Components
	require.Len(t, components, 2)
	require.Equal(t, "pkg:golang/std@1.26.8", components[0].PackageURL)
	require.Equal(t, "pkg:golang/example.com/b@v2.0.0%2Bincompatible", components[1].PackageURL)
	require.Equal(t, "h1:x=", (*components[1].Properties)[0].Value)
}
