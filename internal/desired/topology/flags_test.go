package topology

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// The table has flags that kcp knows, and fields that a setup file has.
func TestFlagOwners(t *testing.T) {
	types := map[Kind]reflect.Type{
		Etcd: reflect.TypeFor[v1alpha1.ManagedEtcd](), CacheServer: reflect.TypeFor[v1alpha1.CacheServer](),
		RootShard: reflect.TypeFor[v1alpha1.RootShard](), Shard: reflect.TypeFor[v1alpha1.Shard](),
		FrontProxy: reflect.TypeFor[v1alpha1.FrontProxy](), VirtualWorkspaces: reflect.TypeFor[v1alpha1.VirtualWorkspace](),
		Agent: reflect.TypeFor[v1alpha1.Agent](), Workloads: reflect.TypeFor[v1alpha1.Workloads](),
	}
	for _, row := range flagOwners() {
		require.True(t, (row.Field == "") != (row.Why == ""), row.names)
		for _, name := range strings.Fields(row.names) {
			known := func(k Kind) bool {
				return k.Program() == "" || slices.Contains(release.Flags(k.Program(), release.Newest), name)
			}
			removed := strings.HasPrefix(row.Why, "kcp does not have this flag")
			require.NotEqual(t, removed, slices.ContainsFunc(row.kinds, known), "a program has --%s", name)
		}
		for _, k := range row.kinds {
			from, path := types[k], row.Field
			if rest, ok := strings.CutPrefix(path, "spec."); ok {
				from, path = reflect.TypeFor[v1alpha1.Spec](), rest
			}
			require.True(t, path == "" || hasField(from, path), "%s has no field %s", k, row.Field)
		}
	}
}

// hasField reports whether a type has a field at a path of JSON names.
func hasField(in reflect.Type, path string) bool {
	name, rest, more := strings.Cut(path, ".")
	for in.Kind() == reflect.Pointer || in.Kind() == reflect.Slice {
		in = in.Elem()
	}
	for f := range in.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && hasField(f.Type, path) {
			return true
		}
		if tag == strings.TrimSuffix(name, "[]") {
			return !more || hasField(f.Type, rest)
		}
	}
	return false
}

// An owner is that of a kind, and flags that nothing else follows from have none.
func TestOwnerOf(t *testing.T) {
	for _, tc := range []struct {
		kind  Kind
		flag  string
		owned bool
		field string
	}{
		{Shard, "etcd-prefix", true, "etcd.external.prefix"},
		{Shard, "etcd_prefix", true, "etcd.external.prefix"},
		{CacheServer, "etcd-prefix", true, ""},
		{FrontProxy, "etcd-prefix", false, ""},
		{FrontProxy, "tls-cert-file", true, "serving"},
		{RootShard, "tls-cert-file", true, ""},
		{RootShard, "v", false, ""},
		{RootShard, "max-requests-inflight", true, ""},
		{RootShard, "audit-log-path", false, ""},
		{RootShard, "oidc-client-id", false, ""},
		{RootShard, "anonymous-auth", true, "spec.authentication.anonymous"},
	} {
		owner, ok := OwnerOf(tc.kind, tc.flag)
		require.Equal(t, tc.owned, ok, "%s --%s", tc.kind, tc.flag)
		require.Equal(t, tc.field, owner.Field, "%s --%s", tc.kind, tc.flag)
	}
}
