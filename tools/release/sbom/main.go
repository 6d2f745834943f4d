// Sbom writes what a Go binary consists of as a CycloneDX document: its modules and the Go release, as the toolchain has
// recorded them in the binary. The same binary gives the same bytes, without network access.
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	log.SetFlags(0)
	out := flag.String("o", "", "`FILE` to write")
	version := flag.String("version", "", "version of the binary")
	date := flag.String("date", "", "time of the document, in RFC 3339")
	flag.Parse()
	if flag.NArg() != 1 || *out == "" {
		log.Fatal("usage: sbom -o FILE [-version VERSION] [-date TIME] BINARY")
	}
	if err := write(*out, flag.Arg(0), *version, *date); err != nil {
		log.Fatal(err)
	}
}

// write writes the document of a binary to a file.
func write(out, binary, version, date string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read the modules of %s: %w", binary, err)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	bom := document(info, sha256.Sum256(content), version)
	bom.Metadata.Timestamp = date
	if err := cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	return f.Close()
}

// document returns the document of a binary with this build information and digest.
func document(info *debug.BuildInfo, digest [sha256.Size]byte, version string) *cdx.BOM {
	main := component(info.Main.Path, cmp.Or(version, info.Main.Version))
	main.Type, main.Scope = cdx.ComponentTypeApplication, ""
	main.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", digest)}}
	components := []cdx.Component{component("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component(m.Path, m.Version)
		if m.Sum != "" {
			c.Properties = &[]cdx.Property{{Name: "go.sum", Value: m.Sum}}
		}
		components = append(components, c)
	}
	needed := []string{}
	for _, c := range components {
		needed = append(needed, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = serial(digest)
	bom.Metadata = &cdx.Metadata{Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &needed}}
	return bom
}

// component returns a module as a component.
func component(path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url,
		Scope: cdx.ScopeRequired}
}

// serial returns a UUID (version 8 of RFC 9562) that depends only on the binary.
func serial(digest [sha256.Size]byte) string {
	id := digest[:16]
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
