package release

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// gates are the feature gates that kcp lists for shards and front-proxies, with blanks, by the release that first had
// them (kcp: pkg/features/kcp_features.go).
var gates = []struct {
	in    span
	names string
}{
	{since("v0.28.0"), "WorkspaceMounts CacheAPIs EnableDeprecatedAPIExportVirtualWorkspacesUrls " +
		"APIResponseCompression OpenAPIEnums LoggingBetaOptions ContextualLogging AllAlpha AllBeta"},
	{since("v0.29.0"), "WorkspaceAuthentication"},
	{since("v0.31.0"), "ConsistentListFromCache ListFromCacheSnapshot StreamingCollectionEncodingToJSON " +
		"StreamingCollectionEncodingToProtobuf WatchList"},
	{since("v0.32.0"), "LogicalClusterMigration"},
}

// Gates returns the feature gates of a release, sorted. It returns nil if kcpctl does not know them: the release is
// newer than Newest, or not a release.
func Gates(v string) []string {
	want, err := core(v)
	if err != nil || version.MustParseSemantic(Newest).LessThan(want) {
		return nil
	}
	var out []string
	for _, g := range gates {
		if g.in.contains(want) {
			out = append(out, strings.Fields(g.names)...)
		}
	}
	slices.Sort(out)
	return out
}

// HasGate reports whether a release may have a feature gate.
func HasGate(v, name string) bool {
	known := Gates(v)
	return known == nil || slices.Contains(known, name)
}
